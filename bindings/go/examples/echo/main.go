// The smallest game server in Go: every player gets back what it sends.
//
//	go run ./examples/echo /run/ringgate arena-1
package main

import (
	"fmt"
	"os"

	"ringgate"
)

func main() {
	options := ringgate.Options{RunDir: "/run/ringgate", Name: "arena-1", MayStartAlone: true}
	if len(os.Args) > 2 {
		options.RunDir, options.Name = os.Args[1], os.Args[2]
	}
	backend, err := options.Connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start:", err)
		os.Exit(1)
	}
	var event ringgate.Event
	for backend.WaitForever() == nil {
		for backend.Next(&event) {
			handle(backend, &event)
		}
		backend.Flush()
	}
}

func handle(backend *ringgate.Backend, event *ringgate.Event) {
	switch event.Kind {
	case ringgate.Payload:
		// A full link drops the answer, as the internet would; Stats count it.
		_ = backend.Send(event.Session, event.Bytes)
	case ringgate.Opened:
		fmt.Printf("player %d in slot %d of %d, by %s\n", event.ClientID, event.Slot, event.SlotsMax, event.Listener)
	case ringgate.OpenedPlain:
		fmt.Printf("a player at %v, by %s\n", event.Address, event.Listener)
	case ringgate.Closed:
		fmt.Printf("session %v is over: %v\n", event.Session, event.Reason)
	case ringgate.LinkUp:
		fmt.Printf("link %d of %d is up\n", event.Worker, event.Workers)
	case ringgate.LinkLost:
		fmt.Printf("link %d is down: %v\n", event.Worker, event.Loss)
	case ringgate.Draining:
		fmt.Printf("worker %d drains: %v left\n", event.Worker, event.Left)
	case ringgate.Undrained:
		fmt.Printf("worker %d takes players again\n", event.Worker)
	}
}
