package ringgate

// One link: a socket, whether it has been welcomed, and what waits to be sent on it.

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

type link struct {
	worker int
	socket *socket
	// The version that the gateway has chosen; zero before its welcome.
	version uint16
	// The kernel takes nothing any more. What it still has for us is read before the link is lost.
	isSendBroken bool
	// A goroutine waits until the kernel has room, and until it says so nothing is sent.
	awaitsRoom bool

	// None of them is empty.
	bundles    []*bundle
	spare      []*bundle
	bundlesMax int
	// Ends of sessions, and moves, that found no room: they must arrive, and hold payloads back until
	// they do.
	late []func(*bundle) bool
	// What has come of a message in several parts.
	assembly assembly
	// The longest payload of each player of netcode.
	netcode map[SessionID]int
}

// A connection's socket, and the goroutine that reads it.
type socket struct {
	connection *net.UnixConn
	raw        syscall.RawConn
	over       chan struct{}
}

// What has come on a socket: a datagram, room for more, or its end. Without a link it has come over
// the connection that registers the process.
type arrival struct {
	link   *link
	socket *socket
	bytes  []byte
	buffer *[BundleBytesMax + 1]byte
	isRoom bool
	err    error
}

func (l *link) open(path, name string, arrivals chan<- arrival, buffers chan *[BundleBytesMax + 1]byte) error {
	socket, err := dial(path)
	if err != nil {
		return err
	}
	var hello bundle
	hello.hello(os.Getpid(), name, VersionMax)
	// A gateway that does not let us in may have said so and hung up by now: that is read.
	if _, err := socket.connection.Write(hello.bytes[:hello.length]); err != nil && !errors.Is(err, syscall.EPIPE) {
		socket.connection.Close()
		return err
	}
	l.socket = socket
	go l.read(l.socket, arrivals, buffers)
	return nil
}

func dial(path string) (*socket, error) {
	connection, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	raw, err := connection.SyscallConn()
	if err != nil {
		connection.Close()
		return nil, err
	}
	return &socket{connection: connection, raw: raw, over: make(chan struct{})}, nil
}

// Reads until the end. It waits where the game does not keep up: then the socket fills, and the
// gateway drops payloads and counts them, so nothing grows here.
func (l *link) read(from *socket, arrivals chan<- arrival, buffers chan *[BundleBytesMax + 1]byte) {
	for {
		var buffer *[BundleBytesMax + 1]byte
		select {
		case buffer = <-buffers:
		default:
			buffer = new([BundleBytesMax + 1]byte)
		}
		length, err := from.read(buffer[:])
		select {
		case arrivals <- arrival{link: l, socket: from, bytes: buffer[:length], buffer: buffer, err: err}:
		case <-from.over:
			return
		}
		if err != nil {
			return
		}
	}
}

// Closes the socket. Returns how many payloads had not been sent.
func (l *link) close() (unsent uint64) {
	if l.socket != nil {
		l.socket.close()
	}
	for _, bundle := range l.bundles {
		unsent += bundle.payloads
	}
	l.spare = append(l.spare, l.bundles...)
	l.bundles = l.bundles[:0]
	l.late = l.late[:0]
	l.assembly.session = 0
	l.netcode = nil
	l.socket, l.version, l.isSendBroken, l.awaitsRoom = nil, 0, false, false
	return unsent
}

func (l *link) isUp() bool { return l.version != 0 && !l.isSendBroken }

// A player of netcode has come.
func (l *link) noteOpened(session SessionID, delivers bool) {
	if l.netcode == nil {
		l.netcode = map[SessionID]int{}
	}
	l.netcode[session] = PayloadBytesMax
	if delivers {
		l.netcode[session] = ShortMessageBytesMax
	}
}

// A player is at another process. The gateway hears with the next flush that this is known.
func (l *link) noteMoved(session SessionID) {
	delete(l.netcode, session)
	l.pushLate(func(b *bundle) bool { return b.confirm(session) })
}

// Why a payload of that length cannot go to one player, if it cannot.
func (l *link) checkPayload(session SessionID, length int) error {
	if length <= ShortMessageBytesMax {
		return nil
	}
	// A session of which nothing is known is over, or about to be opened again: the gateway says
	// what becomes of a payload for it.
	longest, isNetcode := l.netcode[session]
	switch {
	case longest == ShortMessageBytesMax:
		return ErrMessageLength
	case length > PayloadBytesMax && (isNetcode || l.version < versionPlain):
		return ErrPayloadLength
	}
	return nil
}

// Why a player cannot be sent messages, if it cannot. Where the gateway does not say who gets them,
// it says what becomes of one.
func (l *link) checkMessage(session SessionID) error {
	switch {
	case l.version < versionMessages:
		return ErrNoMessages
	case l.version >= versionFarewell && l.netcode[session] != ShortMessageBytesMax:
		return ErrNoDelivery
	}
	return nil
}

// The bundle that records are appended to; nil where the queue is full.
func (l *link) fresh() *bundle {
	if len(l.bundles) == l.bundlesMax {
		return nil
	}
	var next *bundle
	if last := len(l.spare) - 1; last >= 0 {
		next = l.spare[last]
		l.spare = l.spare[:last]
		next.length, next.payloads = 0, 0
	} else {
		next = new(bundle)
	}
	l.bundles = append(l.bundles, next)
	return next
}

func (l *link) last() *bundle {
	if len(l.bundles) == 0 {
		return nil
	}
	return l.bundles[len(l.bundles)-1]
}

// Appends a record to the queue, unless there is no room for it, or it would overtake the end of a
// session.
func (l *link) push(write func(*bundle) bool) bool {
	return len(l.late) == 0 && l.pushNow(write)
}

func (l *link) pushNow(write func(*bundle) bool) bool {
	if last := l.last(); last != nil && write(last) {
		return true
	}
	next := l.fresh()
	return next != nil && write(next)
}

// All parts of a message, or none of them.
func (l *link) pushMessage(session SessionID, channel Channel, token uint64, message []byte) bool {
	parts := (len(message) + partBytesMax - 1) / partBytesMax
	if len(l.late) > 0 || parts > 1 && len(l.bundles)+parts > l.bundlesMax {
		return false
	}
	marks := byte(markFirst)
	for left := message; len(left) > 0; marks, token = 0, 0 {
		part := left
		if len(part) > partBytesMax {
			part = part[:partBytesMax]
		} else {
			marks |= markLast
		}
		left = left[len(part):]
		if !l.pushNow(func(b *bundle) bool { return b.message(session, channel, marks, token, part) }) {
			return false
		}
	}
	return true
}

// Appends a record that must arrive.
func (l *link) pushLate(write func(*bundle) bool) {
	if !l.push(write) {
		l.late = append(l.late, write)
	}
}

// Sends what waits, as far as the kernel has room.
func (l *link) flush(stats *Stats, arrivals chan<- arrival) {
	if !l.awaitsRoom && !l.sendAll(stats) {
		l.awaitsRoom = true
		go l.awaitRoom(l.socket, arrivals)
	}
}

// The same. False where the kernel has no room for the rest.
func (l *link) sendAll(stats *Stats) bool {
	for len(l.bundles) > 0 && l.socket != nil && !l.isSendBroken {
		front := l.bundles[0]
		switch err := l.socket.send(front.bytes[:front.length]); {
		case err == nil:
			stats.PayloadsSent += front.payloads
			stats.BundlesSent++
			l.pop()
		case isFull(err):
			return false
		default:
			// Whatever it was, reading now comes to an end, and with it the link.
			l.isSendBroken = true
			l.socket.shutDown()
		}
	}
	return true
}

func (l *link) pop() {
	l.spare = append(l.spare, l.bundles[0])
	l.bundles = append(l.bundles[:0], l.bundles[1:]...)
	taken := 0
	for _, late := range l.late {
		if !l.pushNow(late) {
			break
		}
		taken++
	}
	l.late = append(l.late[:0], l.late[taken:]...)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// Reads one message. An end that comes without an error is one as well.
func (s *socket) read(buffer []byte) (length int, err error) {
	length, err = s.connection.Read(buffer)
	// The kernel reports once that the gateway closed with our data unread, before it hands out what
	// the gateway had sent until then: its goodbye, for example.
	for errors.Is(err, syscall.ECONNRESET) {
		length, err = s.connection.Read(buffer)
	}
	if length == 0 && err == nil {
		err = io.EOF
	}
	return length, err
}

// Ends it, and with it whoever reads it.
func (s *socket) close() {
	close(s.over)
	s.connection.Close()
}

// Tries once, without waiting: not for whoever waits for room either, as a Write would.
func (s *socket) send(bytes []byte) error {
	failed := error(syscall.EINTR)
	err := s.raw.Control(func(fd uintptr) {
		for failed == syscall.EINTR {
			_, failed = syscall.SendmsgN(int(fd), bytes, nil, nil, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// Ends it in both directions: what has arrived can still be read, and then its end.
func (s *socket) shutDown() {
	_ = s.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}

// POLLOUT of poll(2).
const pollOut = 4

// Whether the kernel takes something to send now.
func hasRoom(fd uintptr) bool {
	asked := struct {
		fd           int32
		events, said int16
	}{fd: int32(fd), events: pollOut}
	var atOnce syscall.Timespec
	ready, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&asked)), 1,
		uintptr(unsafe.Pointer(&atOnce)), 0, 0, 0)
	return ready != 0
}

// Waits until the kernel has room, and says so.
func (l *link) awaitRoom(of *socket, arrivals chan<- arrival) {
	// The kernel tells of a change once, and one that came before this began to wait is forgotten: it
	// is asked each time.
	err := of.raw.Write(hasRoom)
	_ = err // The end of the socket is told by who reads it.
	select {
	case arrivals <- arrival{link: l, socket: of, isRoom: true}:
	case <-of.over:
	}
}
