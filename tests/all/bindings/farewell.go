// Sends the first player who comes sixty messages, and closes it after delivery in the same turn.
package main

import (
	"fmt"
	"os"
	"time"

	"ringgate"
)

func main() {
	backend, err := ringgate.Connect(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	var event ringgate.Event
	for backend.WaitForever() == nil {
		for backend.Next(&event) {
			switch event.Kind {
			case ringgate.Opened:
				for n := 1; n <= 60; n++ {
					reliable := ringgate.Channel{Kind: ringgate.Reliable}
					if err := backend.SendMessage(event.Session, reliable, make([]byte, 50*n), 0); err != nil {
						panic(err)
					}
				}
				err := backend.CloseSessionAfter(event.Session, ringgate.CloseKicked, 25*time.Second, []byte("adé"))
				fmt.Println("taken", err)
			case ringgate.Lingered:
				fmt.Println("lingered", event.Waiting, event.IsDelivered)
			case ringgate.Closed:
				fmt.Println("closed", uint8(event.Reason))
			}
		}
		backend.Flush()
	}
}
