package ringgate

// A backend against a gateway's end of its links.

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = 20 * time.Second

// A gateway's end: one socket for each worker.
type gateway struct {
	t         *testing.T
	runDir    string
	listeners []*net.UnixListener
}

func listen(t *testing.T, runDir string, workers int) *gateway {
	g := &gateway{t: t, runDir: runDir}
	for worker := 0; worker < workers; worker++ {
		path := filepath.Join(runDir, "worker-"+string(rune('0'+worker))+".sock")
		listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		g.listeners = append(g.listeners, listener)
	}
	return g
}

type gatewayLink struct {
	t          *testing.T
	connection *net.UnixConn
}

func (g *gateway) accept(worker int) *gatewayLink {
	g.t.Helper()
	g.listeners[worker].SetDeadline(time.Now().Add(patience))
	connection, err := g.listeners[worker].AcceptUnix()
	if err != nil {
		g.t.Fatal(err)
	}
	connection.SetDeadline(time.Now().Add(patience))
	g.t.Cleanup(func() { connection.Close() })
	return &gatewayLink{g.t, connection}
}

func (l *gatewayLink) receive() []byte {
	l.t.Helper()
	buffer := make([]byte, BundleBytesMax+1)
	length, err := l.connection.Read(buffer)
	if err != nil {
		l.t.Fatal(err)
	}
	return buffer[:length]
}

func (l *gatewayLink) send(records ...[]byte) {
	l.t.Helper()
	var datagram []byte
	for _, record := range records {
		datagram = append(datagram, record...)
	}
	if _, err := l.connection.Write(datagram); err != nil {
		l.t.Fatal(err)
	}
}

func put(kind byte, body ...byte) []byte {
	length := headerBytes + len(body)
	return append([]byte{byte(length), byte(length >> 8), kind, 0}, body...)
}

func welcome(version, worker, workers uint16) []byte {
	body := binary.LittleEndian.AppendUint16(nil, version)
	body = binary.LittleEndian.AppendUint16(body, worker)
	body = binary.LittleEndian.AppendUint16(body, workers)
	return put(kindWelcome, binary.LittleEndian.AppendUint64(body, 7)...)
}

func payload(session SessionID, bytes string) []byte {
	return put(kindPayload, append(binary.LittleEndian.AppendUint64(nil, uint64(session)), bytes...)...)
}

// The next event; fails the test where none comes.
func next(t *testing.T, b *Backend) Event {
	t.Helper()
	var event Event
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if b.Next(&event) {
			return event
		}
		if err := b.Wait(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("nothing has happened")
	return event
}

func connect(t *testing.T, g *gateway) (*Backend, *gatewayLink) {
	t.Helper()
	b, err := Connect(g.runDir, "arena-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	l := g.accept(0)
	if hello := l.receive(); !strings.HasSuffix(string(hello), "arena-1") || hello[2] != kindHello {
		t.Fatalf("no hello: % x", hello)
	}
	return b, l
}

func TestATurnIsOneDatagramForEachLink(t *testing.T) {
	g := listen(t, t.TempDir(), 2)
	b, first := connect(t, g)
	first.send(welcome(3, 0, 2))
	if up := next(t, b); up.Kind != LinkUp || up.Workers != 2 || up.Incarnation != 7 {
		t.Fatalf("%+v", up)
	}
	second := g.accept(1)
	second.receive()
	second.send(welcome(2, 1, 2))
	if up := next(t, b); up.Kind != LinkUp || up.Worker != 1 || !b.IsUp() {
		t.Fatalf("%+v", up)
	}
	const here, there = SessionID(9), SessionID(1<<56 | 4)
	first.send(payload(here, "one"), payload(here, "two"))
	for _, want := range []string{"one", "two"} {
		event := next(t, b)
		if event.Kind != Payload || string(event.Bytes) != want {
			t.Fatalf("%+v", event)
		}
		if err := b.Send(event.Session, event.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if taken, err := b.Multicast([]SessionID{here, there, 5 << 56}, []byte("all")); taken != 2 || err != nil {
		t.Fatal(taken, err)
	}
	if err := b.CloseSession(there, CloseKicked); err != nil {
		t.Fatal(err)
	}
	b.Flush()
	want := string(payload(here, "one")) + string(payload(here, "two"))
	if got := string(first.receive()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "all") {
		t.Fatalf("% x", got)
	}
	if got := second.receive(); got[len(got)-1] != byte(CloseKicked) {
		t.Fatalf("% x", got)
	}
	stats := b.Stats()
	if stats.PayloadsTaken != 4 || stats.PayloadsSent != 4 || stats.BundlesSent != 2 || stats.PayloadsLinkDown != 1 {
		t.Fatalf("%+v", stats)
	}
	if err := b.Send(there, make([]byte, PayloadBytesMax+1)); err != ErrPayloadLength {
		t.Fatal("a link of version 2 has no long payloads: ", err)
	}
	if err := b.Send(here, make([]byte, LongPayloadBytesMax)); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseSession(here, ClosePlayerLeft); err != ErrNotAChoice {
		t.Fatal(err)
	}
}

func TestALinkThatBreaksTheFormatIsLostAndComesBack(t *testing.T) {
	broken := map[string][]byte{
		"the gateway broke the format: unknown kind":        put(77),
		"the gateway did not begin with one welcome":        payload(1, "x"),
		"the gateway has chosen a version that was not":     welcome(9, 0, 1),
		"the gateway broke the format: worker index out":    welcome(3, 1, 2),
		"has closed the link: name taken; another process":  put(kindGoodbye, byte(GoodbyeNameTaken), 0),
		"the link: invalid record (payload length out of r": put(kindGoodbye, byte(GoodbyeRecordInvalid), 7),
		"the gateway broke the format: datagram too long":   make([]byte, BundleBytesMax+1),
	}
	for want, bytes := range broken {
		g := listen(t, t.TempDir(), 1)
		b, l := connect(t, g)
		l.send(bytes)
		lost := next(t, b)
		if lost.Kind != LinkLost || !strings.Contains(lost.Loss.Error(), want) {
			t.Fatalf("%+v instead of %q", lost, want)
		}
		again := make(chan *gatewayLink)
		go func() { again <- g.accept(0) }()
		var back *gatewayLink
		for back == nil {
			select {
			case back = <-again:
			default:
				b.Wait(10 * time.Millisecond)
				if b.Next(&lost) {
					t.Fatalf("%+v", lost)
				}
			}
		}
		back.receive()
		back.send(welcome(1, 0, 1))
		if up := next(t, b); up.Kind != LinkUp || up.Version != 1 {
			t.Fatalf("%+v", up)
		}
	}
}

func TestAGatewayThatStopsIsWaitedFor(t *testing.T) {
	runDir := t.TempDir()
	if _, err := Connect(runDir, "arena-1"); err == nil {
		t.Fatal("there is no gateway")
	}
	if _, err := Connect(runDir, "no name"); err == nil {
		t.Fatal("no such name can be")
	}
	b, err := Options{RunDir: runDir, Name: "arena-1", MayStartAlone: true}.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for start := 0; start < 2; start++ {
		g := listen(t, runDir, 1)
		done := make(chan *gatewayLink)
		go func() { done <- g.accept(0) }()
		var l *gatewayLink
		for l == nil {
			select {
			case l = <-done:
			default:
				b.Wait(10 * time.Millisecond)
				var event Event
				for b.Next(&event) {
					t.Fatalf("%+v", event)
				}
			}
		}
		l.receive()
		l.send(welcome(3, 0, 1))
		if up := next(t, b); up.Kind != LinkUp {
			t.Fatalf("%+v", up)
		}
		b.Send(5, []byte("unsent"))
		l.connection.Close()
		g.listeners[0].Close()
		if lost := next(t, b); lost.Kind != LinkLost || !errors.Is(lost.Loss, ErrHungUp) {
			t.Fatalf("%+v", lost)
		}
	}
	if err := b.Send(5, []byte("x")); err != ErrLinkDown {
		t.Fatal(err)
	}
}

func TestAFullLinkRefusesPayloadsAndKeepsEnds(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(3, 0, 1))
	next(t, b)
	full := make([]byte, PayloadBytesMax)
	refused := 0
	for refused < 10 {
		if b.Send(5, full) == ErrLinkFull {
			refused++
		}
	}
	const ends = 5000
	for session := SessionID(1); session <= ends; session++ {
		if err := b.CloseSession(session, CloseFinished); err != nil {
			t.Fatal(err)
		}
	}
	if b.Send(5, []byte("it would overtake them")) != ErrLinkFull {
		t.Fatal("payloads wait behind what must arrive")
	}
	closed, payloads := SessionID(0), uint64(0)
	read := make(chan []byte)
	go func() {
		for closed := 0; closed < ends; {
			datagram := make([]byte, BundleBytesMax+1)
			length, err := l.connection.Read(datagram)
			if err != nil {
				break
			}
			for left := datagram[:length]; len(left) > 0; left = left[int(left[0])|int(left[1])<<8:] {
				if left[2] == kindClose {
					closed++
				}
			}
			read <- datagram[:length]
		}
		close(read)
	}()
	for isOpen := true; isOpen; {
		var datagram []byte
		select {
		case datagram, isOpen = <-read:
		default:
			b.Wait(time.Millisecond)
			var event Event
			b.Next(&event)
		}
		for left := datagram; len(left) > 0; left = left[int(left[0])|int(left[1])<<8:] {
			switch left[2] {
			case kindPayload:
				payloads++
			case kindClose:
				if closed++; binary.LittleEndian.Uint64(left[4:]) != uint64(closed) {
					t.Fatal("ends are not in order")
				}
			}
		}
	}
	if stats := b.Stats(); closed != ends || payloads != stats.PayloadsTaken || stats.PayloadsLinkFull != uint64(refused)+1 {
		t.Fatalf("%d ends, %d payloads, %+v", closed, payloads, stats)
	}
	// Before it ends, a process waits until all of it has left.
	for b.Send(5, full) == nil {
	}
	// Whatever waits for room in the background.
	b.Flush()
	time.Sleep(10 * time.Millisecond)
	if b.FlushFor(0) == 0 {
		t.Fatal("nobody has read it")
	}
	go func() {
		for err := error(nil); err == nil; {
			_, err = l.connection.Read(make([]byte, BundleBytesMax+1))
		}
	}()
	if waiting := b.FlushFor(time.Minute); waiting != 0 {
		t.Fatalf("%d datagrams wait", waiting)
	}
}

func TestAnEchoAllocatesNothing(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(3, 0, 1))
	next(t, b)
	record := payload(5, "input")
	answer := make([]byte, BundleBytesMax)
	var event Event
	turn := func() {
		l.send(record)
		for b.WaitForever(); !b.Next(&event); b.WaitForever() {
		}
		b.Send(event.Session, event.Bytes)
		b.Flush()
		l.connection.Read(answer)
	}
	for warm := 0; warm < 100; warm++ {
		turn()
	}
	// The other end's reader is in here, too, and so is the test itself.
	if allocations := testing.AllocsPerRun(500, turn); allocations > 3 {
		t.Errorf("%v allocations a turn", allocations)
	}
}

func TestMessagesGoInPartsAndComeTogether(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(4, 0, 1))
	next(t, b)
	const session = SessionID(5)
	long := make([]byte, MessageBytesMax)
	for at := range long {
		long[at] = byte(at * 7 >> 3)
	}
	channel := Channel{Reliable, 9}
	if err := b.SendMessage(session, channel, long, 77); err != nil {
		t.Fatal(err)
	}
	if err := b.SendMessage(session, Channel{Sequenced, 0}, long[:ShortMessageBytesMax+1], 0); err != ErrMessageLength {
		t.Fatal(err)
	}
	if err := b.SendMessage(session, Channel{}, long, 0); err != ErrNoChannel {
		t.Fatal(err)
	}
	b.AskQuality(session)
	b.Flush()
	// What goes out comes back as it is: a message from the gateway looks the same.
	var got []byte
	for isLast := false; !isLast; {
		datagram := l.receive()
		for left := datagram; len(left) > 0; {
			length := int(left[0]) | int(left[1])<<8
			if left[2] == kindMessage {
				l.send(left[:length])
				isLast = left[headerBytes+10]&markLast != 0
			}
			left = left[length:]
		}
	}
	event := next(t, b)
	got = event.Bytes
	if event.Kind != Message || event.Channel != channel || string(got) != string(long) {
		t.Fatalf("%v, %v, %d bytes", event.Kind, event.Channel, len(got))
	}
	// Nothing follows of what has begun for a player who leaves, or is moved away.
	about := []byte{byte(session), 0, 0, 0, 0, 0, 0, 0}
	for _, end := range [][]byte{put(kindClosed, append(about, 0)...), put(kindMoved, append(about, about...)...)} {
		var begun, whole bundle
		begun.message(session, channel, markFirst, 0, long[:10])
		whole.message(9, channel, markFirst|markLast, 0, long[:20])
		l.send(begun.bytes[:begun.length], end, whole.bytes[:whole.length])
		if gone := next(t, b); gone.Session != session || gone.Kind != Closed && gone.Kind != Moved {
			t.Fatalf("%+v", gone)
		}
		if event := next(t, b); event.Kind != Message || event.Session != 9 || len(event.Bytes) != 20 {
			t.Fatalf("%+v", event)
		}
	}
	var other bundle
	other.message(session, channel, markFirst, 0, long[:10])
	other.message(session, Channel{Reliable, 8}, markLast, 0, long[:10])
	l.send(other.bytes[:other.length])
	if lost := next(t, b); lost.Kind != LinkLost || !strings.Contains(lost.Loss.Error(), "begins or ends where it cannot") {
		t.Fatalf("%+v", lost)
	}
}

// A server whose frame took too long asks for a time before now: that waits not at all.
func TestADeadlineThatHasPassedIsNotWaitedFor(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(3, 0, 1))
	endTurn(t, b, LinkUp)
	ended := make(chan error)
	go func() {
		for _, timeout := range []time.Duration{0, -1, -time.Hour, time.Until(time.Time{})} {
			if err := b.Wait(timeout); err != nil {
				ended <- err
			}
		}
		close(ended)
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it waits for something that does not come")
	}
}

// What the gateway says ends both, the longest wait that can be said and the one without an end.
func TestALongWaitEndsWithWhatIsSaid(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(3, 0, 1))
	endTurn(t, b, LinkUp)
	longest := func() error { return b.Wait(math.MaxInt64) }
	for _, wait := range []func() error{longest, b.WaitForever} {
		said := make(chan struct{})
		go func() {
			l.send(payload(9, "up"))
			close(said)
		}()
		var event Event
		for !b.Next(&event) {
			if err := wait(); err != nil {
				t.Fatal(err)
			}
		}
		<-said
		if event.Kind != Payload || string(event.Bytes) != "up" || b.Next(&event) {
			t.Fatalf("%+v", event)
		}
	}
}

// Takes an event with which a turn is over.
func endTurn(t *testing.T, b *Backend, kind Kind) {
	t.Helper()
	event := next(t, b)
	if event.Kind != kind || b.Next(&event) {
		t.Fatalf("%+v", event)
	}
}

func opened(session SessionID, flags byte) []byte {
	body := append(binary.LittleEndian.AppendUint64(nil, uint64(session)), make([]byte, 38+UserDataBytes)...)
	record := put(kindOpened, append(body, "eu"...)...)
	record[3] = flags
	return record
}

func openedPlain(session SessionID) []byte {
	body := append(binary.LittleEndian.AppendUint64(nil, uint64(session)), make([]byte, 30)...)
	return put(kindOpenedPlain, append(body, "any"...)...)
}

func TestAPayloadIsNoLongerThanItsPlayerTakes(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(VersionMax, 0, 1))
	next(t, b)
	const whole, raw, plain = SessionID(9), SessionID(10), SessionID(11)
	l.send(opened(whole, flagDelivers), opened(raw, 0), openedPlain(plain))
	for _, want := range []SessionID{whole, raw, plain} {
		event := next(t, b)
		if event.Session != want || event.Delivers != (want == whole) {
			t.Fatalf("%+v", event)
		}
	}
	bytes := make([]byte, LongPayloadBytesMax)
	longest, longer := bytes[:ShortMessageBytesMax], bytes[:ShortMessageBytesMax+1]
	netcode := bytes[:PayloadBytesMax]
	for _, it := range []struct {
		session SessionID
		payload []byte
		want    error
	}{
		{whole, longest, nil}, {whole, longer, ErrMessageLength}, {whole, bytes, ErrMessageLength},
		{raw, longer, nil}, {raw, netcode, nil}, {raw, bytes[:PayloadBytesMax+1], ErrPayloadLength},
		{raw, bytes, ErrPayloadLength}, {plain, netcode, nil}, {plain, bytes, nil},
	} {
		if err := b.Send(it.session, it.payload); err != it.want {
			t.Fatal(it.session, len(it.payload), err)
		}
	}
	both := []SessionID{raw, whole}
	if taken, err := b.Multicast(both, longest); taken != 2 || err != nil {
		t.Fatal(taken, err)
	}
	if taken, err := b.Multicast(both, longer); taken != 0 || err != ErrMessageLength {
		t.Fatal(taken, err)
	}
	if taken, err := b.Multicast(both[:1], longer); taken != 1 || err != nil {
		t.Fatal(taken, err)
	}
	message := func(session SessionID) error {
		err := b.SendMessage(session, Channel{Reliable, 0}, longest, 0)
		if asked := b.AskQuality(session); asked != err {
			t.Fatal(session, asked, err)
		}
		return err
	}
	if err := message(whole); err != nil {
		t.Fatal(err)
	}
	l.send(put(kindClosed, append(binary.LittleEndian.AppendUint64(nil, uint64(whole)), byte(CloseKicked))...))
	if closed := next(t, b); closed.Kind != Closed {
		t.Fatalf("%+v", closed)
	}
	for _, session := range []SessionID{whole, raw, plain} {
		if err := message(session); err != ErrNoDelivery {
			t.Fatal(session, err)
		}
	}
	if err := b.Send(whole, longer); err != nil {
		t.Fatal("the number may be another player's: ", err)
	}
}

func TestASessionIsClosedAfterDelivery(t *testing.T) {
	const session = SessionID(9)
	close := func(version uint16, text []byte, linger time.Duration) ([]byte, *Backend, *gatewayLink) {
		g := listen(t, t.TempDir(), 1)
		b, l := connect(t, g)
		l.send(welcome(version, 0, 1))
		next(t, b)
		if err := b.CloseSessionAfter(session, CloseKicked, linger, make([]byte, FarewellBytesMax+1)); err != ErrFarewell {
			t.Fatal(err)
		}
		if err := b.CloseSessionAfter(session, CloseShutdown, linger, text); err != ErrNotAChoice {
			t.Fatal(err)
		}
		if err := b.CloseSessionAfter(1<<56|9, CloseKicked, linger, text); err != ErrLinkDown {
			t.Fatal(err)
		}
		if err := b.CloseSessionAfter(session, CloseKicked, linger, text); err != nil {
			t.Fatal(err)
		}
		b.Flush()
		return l.receive(), b, l
	}
	id := binary.LittleEndian.AppendUint64(nil, uint64(session))
	join := func(parts ...[]byte) (all []byte) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	old, _, _ := close(versionMessages, []byte("bye"), time.Hour)
	if want := put(kindClose, join(id, []byte{byte(CloseKicked)})...); string(old) != string(want) {
		t.Fatalf("% x to a gateway that knows nothing else", old)
	}
	said, b, l := close(VersionMax, []byte("bye"), time.Hour)
	want := put(kindCloseAfter, join(id, []byte{byte(CloseKicked), 0x30, 0x75, 0, 0}, []byte("bye"))...)
	if string(said) != string(want) {
		t.Fatalf("% x", said)
	}
	l.send(put(kindLingered, join(id, []byte{7, 0, 0, 0, 1})...), put(kindClosed, join(id, []byte{byte(CloseKicked)})...))
	if event := next(t, b); event.Kind != Lingered || event.Session != session || event.Waiting != 7 || !event.IsDelivered {
		t.Fatalf("%+v", event)
	}
	if event := next(t, b); event.Kind != Closed || event.Reason != CloseKicked {
		t.Fatalf("%+v", event)
	}
}

// A link of the latest version with a player who gets messages, and one who does not.
func withPlayers(t *testing.T, whole, raw SessionID) (*Backend, *gatewayLink) {
	t.Helper()
	g := listen(t, t.TempDir(), 1)
	b, l := connect(t, g)
	l.send(welcome(VersionMax, 0, 1))
	next(t, b)
	l.send(opened(whole, flagDelivers), opened(raw, 0))
	next(t, b)
	next(t, b)
	return b, l
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	const whole, raw, elsewhere = SessionID(9), SessionID(10), SessionID(1<<56 | 9)
	b, _ := withPlayers(t, whole, raw)
	reliable := Channel{Kind: Reliable}
	for name, it := range map[string]struct {
		session SessionID
		move    Move
		want    error
	}{
		"no name":           {raw, Move{}, ErrName},
		"a name of two":     {raw, Move{Backend: "zone 2"}, ErrName},
		"the longest data":  {raw, Move{Backend: "zone-2", Data: make([]byte, MoveBytesMax)}, nil},
		"longer data":       {raw, Move{Backend: "zone-2", Data: make([]byte, MoveBytesMax+1)}, ErrMoveLength},
		"no link":           {elsewhere, Move{Backend: "zone-2"}, ErrLinkDown},
		"no channel":        {whole, Move{Backend: "zone-2", Message: []byte("door")}, ErrNoChannel},
		"a long message":    {whole, Move{Backend: "zone-2", Channel: reliable, Message: make([]byte, ShortMessageBytesMax+1)}, ErrMessageLength},
		"the longest":       {whole, Move{Backend: "zone-2", Channel: reliable, Message: make([]byte, ShortMessageBytesMax)}, nil},
		"one who gets none": {raw, Move{Backend: "zone-2", Channel: reliable, Message: []byte("door")}, ErrNoDelivery},
	} {
		if err := b.MoveSession(it.session, it.move); err != it.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Answer(elsewhere, 4, true); err != ErrLinkDown {
		t.Error(err)
	}
	g := listen(t, t.TempDir(), 1)
	old, l := connect(t, g)
	l.send(welcome(versionFarewell, 0, 1))
	next(t, old)
	if err := old.MoveSession(raw, Move{Backend: "zone-2"}); err != ErrNoMoves {
		t.Error(err)
	}
}

func TestAPlayerIsMoved(t *testing.T) {
	const whole, raw = SessionID(9), SessionID(10)
	b, l := withPlayers(t, whole, raw)
	var want bundle
	for given, says := range map[time.Duration]time.Duration{0: MoveTimeDefault, -1: MoveTimeDefault, time.Second: time.Second, time.Hour: MoveTimeMax} {
		data := []byte("level 3")
		move := Move{Backend: "zone-2", Ticket: 12, Time: given, Confirms: true, Data: data}
		if err := b.MoveSession(whole, move); err != nil {
			t.Fatal(err)
		}
		copy(data, "changed")
		b.Flush()
		want.length, move.Time, move.Data = 0, says, []byte("level 3")
		want.move(whole, &move)
		if said := l.receive(); string(said) != string(want.bytes[:want.length]) {
			t.Fatalf("% x", said)
		}
	}
	id := func(session SessionID) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(session)) }
	ticket := binary.LittleEndian.AppendUint64(nil, 12)
	l.send(put(kindMoveRefused, append(append(id(whole), ticket...), 200)...), put(kindMoved, append(id(whole), ticket...)...))
	if event := next(t, b); event.Kind != MoveRefused || event.Session != whole || event.Ticket != 12 || event.Refusal != MoveOther {
		t.Fatalf("%+v", event)
	}
	if event := next(t, b); event.Kind != Moved || event.Session != whole || event.Ticket != 12 {
		t.Fatalf("%+v", event)
	}
	if err := b.SendMessage(whole, Channel{Kind: Reliable}, []byte("late"), 0); err != ErrNoDelivery {
		t.Fatal(err)
	}
	// What is said before the flush comes behind the word that the move is known.
	b.Send(raw, []byte("on"))
	b.Flush()
	want.length = 0
	want.confirm(whole)
	want.payload(raw, []byte("on"))
	if said := l.receive(); string(said) != string(want.bytes[:want.length]) {
		t.Fatalf("% x", said)
	}
}

// They are kept, and come behind what was taken before, as ends of sessions are.
func TestAMoveIsNotLostOnAFullLink(t *testing.T) {
	const whole, raw = SessionID(9), SessionID(10)
	b, l := withPlayers(t, whole, raw)
	taken := 0
	for ; b.Send(raw, make([]byte, PayloadBytesMax)) == nil; taken++ {
	}
	if err := b.MoveSession(whole, Move{Backend: "zone-2", Ticket: 12}); err != nil {
		t.Fatal(err)
	}
	if err := b.Answer(raw, 4, false); err != nil {
		t.Fatal(err)
	}
	said := make(chan []byte, 1)
	go func() {
		for payloads := 0; ; {
			datagram := make([]byte, BundleBytesMax+1)
			length, err := l.connection.Read(datagram)
			if err != nil {
				close(said)
				return
			}
			left := datagram[:length]
			for ; len(left) > 0 && left[2] == kindPayload; payloads++ {
				left = left[int(left[0])|int(left[1])<<8:]
			}
			if len(left) > 0 {
				if payloads == taken {
					said <- left
				}
				close(said)
				return
			}
		}
	}()
	var want bundle
	want.move(whole, &Move{Backend: "zone-2", Ticket: 12, Time: MoveTimeDefault})
	want.answer(raw, 4, false)
	for end := time.Now().Add(patience); time.Now().Before(end); b.Wait(time.Millisecond) {
		var event Event
		for b.Next(&event) {
		}
		select {
		case got := <-said:
			if string(got) != string(want.bytes[:want.length]) {
				t.Fatalf("% x", got)
			}
			return
		default:
		}
	}
	t.Fatal("nothing has come")
}

func TestAPlayerComesFromAnotherProcess(t *testing.T) {
	const whole, raw, coming = SessionID(9), SessionID(10), SessionID(11)
	b, l := withPlayers(t, whole, raw)
	body := binary.LittleEndian.AppendUint64(nil, uint64(coming))
	for _, number := range []uint64{4, 12, 42} {
		body = binary.LittleEndian.AppendUint64(body, number)
	}
	body = append(body, 5, 0, 0, 0, 64, 0, 0, 0)
	body = append(body, make([]byte, 22)...)
	body = append(body, 0xd0, 7, 0, 0)
	body = append(body, make([]byte, UserDataBytes)...)
	body = append(body, "\x02eu\x06zone-1level 3"...)
	offered := put(kindOffered, body...)
	offered[3] = flagDelivers
	later := append([]byte(nil), offered...)
	later[3] = 2
	over := put(kindOfferOver, append(binary.LittleEndian.AppendUint64(body[:8:8], 4), byte(MoveTime))...)
	l.send(later, offered, over)
	event := next(t, b)
	if event.Kind != Offered || event.Session != coming || event.Offer != 4 || event.Ticket != 12 || event.ClientID != 42 ||
		event.Slot != 5 || event.SlotsMax != 64 || event.Left != 2*time.Second || len(event.UserData) != UserDataBytes ||
		event.Listener != "eu" || event.From != "zone-1" || string(event.Bytes) != "level 3" || !event.Delivers {
		t.Fatalf("%+v", event)
	}
	if err := b.SendMessage(coming, Channel{Kind: Reliable}, []byte("early"), 0); err != ErrNoDelivery {
		t.Fatal("it is no player yet: ", err)
	}
	if event := next(t, b); event.Kind != OfferOver || event.Session != coming || event.Offer != 4 || event.Refusal != MoveTime {
		t.Fatalf("%+v", event)
	}
	if err := b.Answer(coming, 4, true); err != nil {
		t.Fatal(err)
	}
	b.Flush()
	var want bundle
	want.answer(coming, 4, true)
	if said := l.receive(); string(said) != string(want.bytes[:want.length]) {
		t.Fatalf("% x", said)
	}
	came := opened(coming, flagDelivers|flagMovedIn)
	came = append(came[:len(came)-2], "\x0c\x00\x00\x00\x00\x00\x00\x00eu"...)
	came[0] += 8
	l.send(came)
	if event := next(t, b); event.Kind != Opened || !event.IsMoved || event.Ticket != 12 || !event.Delivers || event.Listener != "eu" {
		t.Fatalf("%+v", event)
	}
	if err := b.SendMessage(coming, Channel{Kind: Reliable}, []byte("here"), 0); err != nil {
		t.Fatal(err)
	}
}

// Room that the kernel has before somebody waits for it is found as well: it tells of it once.
func TestRoomThatIsThereAlready(t *testing.T) {
	g := listen(t, t.TempDir(), 1)
	of, err := dial(filepath.Join(g.runDir, "worker-0.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer of.close()
	peer := g.accept(0)
	sent := 0
	for ; err == nil; sent++ {
		err = of.send(make([]byte, 4096))
	}
	if !isFull(err) {
		t.Fatal(err)
	}
	for ; sent > 1; sent-- {
		peer.receive()
	}
	l, arrivals := &link{socket: of}, make(chan arrival, 1)
	go l.awaitRoom(of, arrivals)
	select {
	case it := <-arrivals:
		if !it.isRoom {
			t.Fatal("something else has come")
		}
	case <-time.After(patience):
		t.Fatal("nobody has said that there is room")
	}
}
