// A game server for one match, in Go, which registers itself with the fleet of its gateway: starting
// while it loads, ready for anybody, allocated once somebody plays, draining when all have left. Then
// it ends, and with it what stands in the fleet. Every player gets back what it sends.
//
//	go run ./examples/match /run/ringgate arena-1
package main

import (
	"fmt"
	"os"
	"time"

	"ringgate"
)

// One match.
type match struct {
	backend  *ringgate.Backend
	what     ringgate.Announcement
	standing ringgate.Standing
	players  map[ringgate.SessionID]bool
}

func main() {
	// No [[backend]] of a config names it, so it may start before its gateway knows of it.
	options := ringgate.Options{RunDir: "/run/ringgate", Name: "arena-1", MayStartAlone: true}
	if len(os.Args) > 2 {
		options.RunDir, options.Name = os.Args[1], os.Args[2]
	}
	if err := play(options); err != nil {
		fmt.Fprintln(os.Stderr, "cannot go on:", err)
		os.Exit(1)
	}
}

func play(options ringgate.Options) error {
	backend, err := options.Connect()
	if err != nil {
		return err
	}
	defer backend.Close()
	m := match{backend: backend, players: map[ringgate.SessionID]bool{}}
	m.what = ringgate.Announcement{Group: "arena", Slots: 4, Labels: map[string]string{"map": "dust", "mode": "café"}}
	if err := m.becomes(ringgate.StateStarting); err != nil {
		return err
	}
	// Here a real server loads its level.
	if err := m.becomes(ringgate.StateReady); err != nil {
		return err
	}
	var event ringgate.Event
	for isOver := false; !isOver; {
		// Who was on the way when the last one left plays on: the end comes a turn later.
		isEmpty, wait := m.what.State == ringgate.StateDraining, time.Hour
		if isEmpty {
			wait = time.Second
		}
		if err := backend.Wait(wait); err != nil {
			return err
		}
		for backend.Next(&event) {
			if err := m.handle(&event); err != nil {
				return err
			}
		}
		backend.Flush()
		isOver = isEmpty && m.what.State == ringgate.StateDraining
		if backend.Standing() != m.standing {
			m.standing = backend.Standing()
			fmt.Println(m.standing)
		}
	}
	return nil
}

// Says what it is from now on. The gateway counts its players.
func (m *match) becomes(state ringgate.State) error {
	m.what.State = state
	return m.backend.Announce(m.what)
}

func (m *match) handle(event *ringgate.Event) error {
	switch event.Kind {
	case ringgate.Opened:
		m.players[event.Session] = true
		fmt.Println(len(m.players), "players")
		return m.becomes(ringgate.StateAllocated)
	case ringgate.Payload:
		// A full link drops the answer, as the internet would; Stats count it.
		_ = m.backend.Send(event.Session, event.Bytes)
	case ringgate.Closed, ringgate.Moved:
		// One who was moved is another process's, and as gone as one who has left.
		delete(m.players, event.Session)
		fmt.Println(len(m.players), "players")
		if len(m.players) == 0 {
			return m.becomes(ringgate.StateDraining)
		}
	case ringgate.LinkLost:
		// Players who are still there are opened again when the link is back.
		for session := range m.players {
			if session.Worker() == event.Worker {
				delete(m.players, session)
			}
		}
	}
	return nil
}
