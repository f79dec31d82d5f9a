module ringgate/examples/tokens

go 1.19

require golang.org/x/crypto v0.4.0
