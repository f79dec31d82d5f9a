// Package ringgate is the game server's end of ringgate's bundle link, in Go alone.
//
// A Backend holds one link to every worker of the gateway and puts them together again when the
// gateway restarts. The game's loop is a turn: take every event, answer, flush once. That makes one
// datagram for each link and turn, however many players there are.
//
//	backend, err := ringgate.Connect("/run/ringgate", "arena-1")
//	if err != nil {
//		log.Fatal(err)
//	}
//	var event ringgate.Event
//	for backend.WaitForever() == nil {
//		for backend.Next(&event) {
//			if event.Kind == ringgate.Payload {
//				backend.Send(event.Session, event.Bytes)
//			}
//		}
//		backend.Flush()
//	}
//
// Only Wait and WaitForever block. One goroutine at a time may use a backend; different backends are
// independent. Nothing allocates after the first turns. The format is described in docs/PROTOCOLS.md
// of the gateway's repository.
package ringgate
