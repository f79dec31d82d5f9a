module ringgate

go 1.19
