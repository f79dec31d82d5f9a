package ringgate

// Announcements against docs/PROTOCOLS.md, and a backend against a gateway's announce socket.

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnnouncementsOfTheDocument(t *testing.T) {
	first := Announcement{Group: "arena", Slots: 64}
	second := Announcement{
		Group: "arena", Slots: 64, State: StateAllocated, CountsPlayers: true, Players: 3,
		Labels: map[string]string{"mode": "café", "map": "dust"},
	}
	written := map[string]func() ([]byte, error){
		"starting":  func() ([]byte, error) { return first.encode("arena-1", 81985529216486895) },
		"allocated": func() ([]byte, error) { return second.encode("arena-1", 9) },
	}
	for _, it := range blocks(t, "announce") {
		if it.direction == "to-process" {
			standing, isStanding := decodeStanding(it.bytes)
			if !isStanding || fmt.Sprint("standing ", uint8(standing)) != it.meaning {
				t.Errorf("%q is read as %d", it.meaning, standing)
			}
			continue
		}
		for state, write := range written {
			if record, err := write(); strings.Contains(it.meaning, state) {
				if err != nil || !bytes.Equal(record, it.bytes) {
					t.Errorf("%s is written as % x, %v", it.meaning, record, err)
				}
				delete(written, state)
			}
		}
	}
	if len(written) > 0 {
		t.Errorf("the document has no example of %v", written)
	}
}

func TestWhatCannotBeAnnounced(t *testing.T) {
	good := Announcement{Group: "g", Slots: SlotsMax, Labels: map[string]string{"a.b_c-d": "\u00a0" + strings.Repeat("x", 253)}}
	if _, err := good.encode(strings.Repeat("n", 31), 0); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for n := 0; n <= LabelsMax; n++ {
		many[fmt.Sprint("l", n)] = ""
	}
	bad := map[string]Announcement{
		"no group":             {Slots: 1},
		"a group with a slash": {Group: "a/b", Slots: 1},
		"a long group":         {Group: strings.Repeat("g", 65), Slots: 1},
		"no slots":             {Group: "g"},
		"too many slots":       {Group: "g", Slots: SlotsMax + 1},
		"a state of its own":   {Group: "g", Slots: 1, State: 4},
		"uncountable players":  {Group: "g", Slots: 1, CountsPlayers: true, Players: ^uint32(0)},
		"a label without name": {Group: "g", Slots: 1, Labels: map[string]string{"": "x"}},
		"a label with a dash":  {Group: "g", Slots: 1, Labels: map[string]string{"-": "x"}},
		"a control character":  {Group: "g", Slots: 1, Labels: map[string]string{"x": "\n"}},
		"one of the second":    {Group: "g", Slots: 1, Labels: map[string]string{"x": "\u0085"}},
		"no UTF-8":             {Group: "g", Slots: 1, Labels: map[string]string{"x": "\xff"}},
		"a long value":         {Group: "g", Slots: 1, Labels: map[string]string{"x": strings.Repeat("x", 256)}},
		"too many labels":      {Group: "g", Slots: 1, Labels: many},
	}
	for what, it := range bad {
		if record, err := it.encode("b", 1); err != ErrAnnouncement {
			t.Errorf("%s is written as % x", what, record)
		}
	}
	for _, name := range []string{"", ".b", "a b", strings.Repeat("n", 32)} {
		if _, err := (&Announcement{Group: "g", Slots: 1}).encode(name, 1); err != ErrAnnouncement {
			t.Errorf("%q can be announced", name)
		}
	}
}

func TestWhatIsNoStanding(t *testing.T) {
	for _, bad := range []string{
		"", "\x07", "\x07\x00\x71\x00\x01\x00", "\x08\x00\x71\x00\x01\x00\x01", "\x07\x00\x70\x00\x01\x00\x01",
		"\x07\x00\x71\x01\x01\x00\x01", "\x07\x00\x71\x00\x00\x00\x01",
	} {
		if standing, isStanding := decodeStanding([]byte(bad)); isStanding {
			t.Errorf("% x is read as %v", bad, standing)
		}
	}
	// A later version appends fields, and standings.
	if standing, _ := decodeStanding([]byte("\x09\x00\x71\x00\x02\x00\x01\x05\x05")); standing != StandingRegistered {
		t.Error(standing)
	}
	if standing, isStanding := decodeStanding([]byte("\x07\x00\x71\x00\x02\x00\x09")); !isStanding || standing != StandingRefused {
		t.Error(standing)
	}
}

// A gateway's announce socket.
func announceSocket(t *testing.T, runDir string) *gateway {
	path := filepath.Join(runDir, "announce.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &gateway{t: t, runDir: runDir, listeners: []*net.UnixListener{listener}}
}

// Turns until something has become true.
func turnUntil(t *testing.T, b *Backend, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if is() {
			return
		}
		if err := b.Wait(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for event := (Event{}); b.Next(&event); {
		}
	}
	t.Fatal("it has not come true: ", what)
}

func TestAProcessStaysRegisteredWhateverItsGatewayDoes(t *testing.T) {
	runDir := t.TempDir()
	b, err := Options{RunDir: runDir, Name: "arena-1", MayStartAlone: true}.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	what := Announcement{Group: "arena", Slots: 4}
	if err := b.Announce(Announcement{}); err != ErrAnnouncement {
		t.Fatal(err)
	}
	// There is no gateway yet.
	if err := b.Announce(what); err != nil || b.Standing() != StandingWaiting {
		t.Fatal(err, b.Standing())
	}
	var first []byte
	for start := 0; start < 2; start++ {
		g := announceSocket(t, runDir)
		came := make(chan *gatewayLink, 1)
		go func() { came <- g.accept(0) }()
		turnUntil(t, b, "it comes", func() bool { return len(came) > 0 })
		l := <-came
		record := l.receive()
		if start == 0 {
			first = record
		} else if !bytes.Equal(record, first) {
			t.Fatalf("it says something else to the next gateway: % x", record)
		}
		answer := func(standing byte) { l.send([]byte{7, 0, 113, 0, 1, 0, standing}) }
		for _, standing := range []Standing{StandingNameTaken, StandingRegistered} {
			answer(byte(standing))
			turnUntil(t, b, standing.String(), func() bool { return b.Standing() == standing })
		}
		if start == 0 {
			// What has not changed is not said again, and the latest is said at once.
			what.State = StateDraining
			if err := b.Announce(Announcement{Group: "arena", Slots: 4}); err != nil {
				t.Fatal(err)
			}
			if err := b.Announce(what); err != nil {
				t.Fatal(err)
			}
			if record := l.receive(); record[6] != byte(StateDraining) {
				t.Fatalf("% x", record)
			}
			what.State = StateStarting
			if err := b.Announce(what); err != nil {
				t.Fatal(err)
			}
			l.receive()
		} else {
			// Whoever refuses hangs up, and what it has said last still holds.
			answer(byte(StandingUnauthorised))
		}
		l.connection.Close()
		g.listeners[0].Close()
		want := []Standing{StandingWaiting, StandingUnauthorised}[start]
		turnUntil(t, b, want.String(), func() bool { return b.Standing() == want && b.registration.socket == nil })
	}
	b.Close()
	if err := b.Announce(what); err != ErrFreed {
		t.Fatal(err)
	}
}

func TestTheEndOfAProcessIsTheEndOfItsConnection(t *testing.T) {
	runDir := t.TempDir()
	g := announceSocket(t, runDir)
	b, err := Options{RunDir: runDir, Name: "arena-1", MayStartAlone: true}.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Announce(Announcement{Group: "arena", Slots: 4}); err != nil {
		t.Fatal(err)
	}
	l := g.accept(0)
	l.receive()
	b.Close()
	if length, err := l.connection.Read(make([]byte, 9)); length != 0 || err == nil {
		t.Fatal(length, err)
	}
}
