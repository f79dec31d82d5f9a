// A game server with a world, in Go: 30 times a second, every player is told the state of all.
//
// A player's state is the first four bytes of its last payload. A snapshot is the tick's number and
// eight bytes for each player (slot, state), little-endian, so one payload has room for 149
// players; a real game sends each player what it can see.
//
//	go run ./examples/snapshots /run/ringgate arena-1
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"ringgate"
)

const (
	tick       = time.Second / 30
	playersMax = (ringgate.PayloadBytesMax - 4) / 8
)

type player struct {
	slot  uint32
	state [4]byte
}

type world struct {
	ticks    uint32
	players  map[ringgate.SessionID]*player
	sessions []ringgate.SessionID
	snapshot []byte
}

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
	w := world{players: map[ringgate.SessionID]*player{}}
	next := time.Now().Add(tick)
	var event ringgate.Event
	for backend.Wait(time.Until(next)) == nil {
		for backend.Next(&event) {
			w.handle(backend, &event)
		}
		if now := time.Now(); !now.Before(next) {
			// After a stall the missed ticks are left out instead of being sent all at once.
			if next = next.Add(tick); next.Before(now) {
				next = now.Add(tick)
			}
			w.tell(backend)
		}
		backend.Flush()
	}
}

func (w *world) handle(backend *ringgate.Backend, event *ringgate.Event) {
	switch event.Kind {
	case ringgate.Opened:
		if len(w.players) < playersMax {
			w.players[event.Session] = &player{slot: event.Slot}
		} else {
			_ = backend.CloseSession(event.Session, ringgate.CloseRefused)
		}
	case ringgate.Payload:
		if p := w.players[event.Session]; p != nil && len(event.Bytes) >= 4 {
			copy(p.state[:], event.Bytes)
		}
	case ringgate.Closed, ringgate.Moved:
		// One who was moved is another process's, and as gone as one who has left.
		delete(w.players, event.Session)
	case ringgate.LinkLost:
		for session := range w.players {
			if session.Worker() == event.Worker {
				delete(w.players, session)
			}
		}
	}
}

func (w *world) tell(backend *ringgate.Backend) {
	w.ticks++
	w.sessions = w.sessions[:0]
	w.snapshot = binary.LittleEndian.AppendUint32(w.snapshot[:0], w.ticks)
	for session, p := range w.players {
		w.sessions = append(w.sessions, session)
		w.snapshot = binary.LittleEndian.AppendUint32(w.snapshot, p.slot)
		w.snapshot = append(w.snapshot, p.state[:]...)
	}
	_, _ = backend.Multicast(w.sessions, w.snapshot)
}
