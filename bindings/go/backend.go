package ringgate

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"syscall"
	"time"
)

// Options say how to connect. The zero of a field means the default.
type Options struct {
	RunDir string // the gateway's run_dir
	Name   string // the backend's name in the gateway's config
	// How many bundles of 16 KiB may wait for each worker before payloads are refused; 16. At least 5,
	// because the longest message takes as many.
	QueueBundles int
	// A gateway that is not there yet is waited for, not an error.
	MayStartAlone bool
}

// Kind says what happened, and which fields of an Event are set besides Kind and Worker.
type Kind uint8

const (
	LinkUp    Kind = iota + 1 // Workers, Incarnation, Version
	Opened                    // Session, ClientID, Address, Slot, SlotsMax, UserData, Listener, Delivers, IsMoved, Ticket
	Payload                   // Session, Bytes
	Closed                    // Session, Reason
	Pong                      // RoundTrip
	Draining                  // Left: the gateway takes no new players and will shut down
	Undrained                 // the gateway takes players again
	LinkLost                  // Loss, Unsent: forget all sessions of the worker; players who are still there are opened again
	// A player of a plain listener: Session, Address, Slot, SlotsMax, Listener. The slot is NoSlot
	// until its source has sent again after an answer; then the event comes once more.
	OpenedPlain
	// Of players of listeners with delivery = "gateway":
	Message // Session, Channel, Bytes: a whole message
	Report  // Session, Token, IsDelivered: one for each message that was sent with a token
	Room    // Session, IsFull, Waiting: no more should be sent on reliable channels, or more may be again
	Quality // Session, RoundTrip, Variation, PacketLoss, Waiting
	// What became of a session that was closed with CloseSessionAfter: Session, Waiting (so much is not
	// known to have arrived), IsDelivered (the player's library has the reason and the text). Right
	// before its Closed, whoever ended it.
	Lingered
	// Of players who are moved from one game process to another:
	// A player of another process may come, as Answer says: Session, Offer, Ticket, ClientID, Address,
	// Slot, SlotsMax, Left, UserData, Listener, Delivers, From, Bytes (0 to MoveBytesMax). It is no
	// player of this one before its Opened.
	Offered
	OfferOver   // Session, Offer, Refusal: it cannot come any more
	Moved       // Session, Ticket: it is at another process. The last event about the session, but for Reports of what was sent before
	MoveRefused // Session, Ticket, Refusal: it plays on here
)

// Event is what happened. Slices are valid until the next call of Next.
type Event struct {
	Kind        Kind
	Worker      int // whose link it came on
	Workers     int
	Version     int
	Incarnation uint64
	Session     SessionID
	ClientID    uint64
	Address     netip.AddrPort
	Slot        uint32
	SlotsMax    uint32
	UserData    []byte // UserDataBytes, the connect token's
	Listener    string // where the player came in
	Delivers    bool   // the player gets messages; gateways before version 5 do not say so
	Bytes       []byte // 1 to LongPayloadBytesMax; of netcode 1 to PayloadBytesMax
	Reason      CloseReason
	RoundTrip   time.Duration
	Left        time.Duration
	Channel     Channel
	Token       uint64
	IsDelivered bool
	IsFull      bool
	Waiting     int // bytes at the gateway, on reliable channels
	Variation   time.Duration
	PacketLoss  float64 // 0 to 1
	Loss        error   // why the link is down, in words; *Goodbye where the gateway said so
	Unsent      uint64  // payloads that Send had taken, and that went down with the link
	IsMoved     bool    // the player has come from another process, with this ticket
	Ticket      uint64
	Offer       uint64
	From        string // where an offered player plays
	Refusal     MoveRefusal
}

// Move says where a player is to play. The zero of a field means none, or the default.
type Move struct {
	Backend string        // the name of the other process in the gateway's config
	Ticket  uint64        // what both processes know the move by
	Time    time.Duration // so long may the other one take to answer; MoveTimeDefault, and MoveTimeMax at most
	// The other one is told that it has the player when this one has heard that it has lost it.
	Confirms bool
	Data     []byte // for the other one: at most MoveBytesMax
	// What the player is sent in between, if it gets messages: up to ShortMessageBytesMax, on a reliable
	// channel behind all that this process has sent there, and before all from the other there.
	Channel Channel
	Message []byte
}

// How long a move waits for the other process to answer.
const (
	MoveTimeDefault = 2 * time.Second
	MoveTimeMax     = 30 * time.Second
)

// Stats say what became of payloads, one for each player that a multicast names. All only grow.
// PayloadsTaken = PayloadsSent + PayloadsLost + those that wait for a flush.
type Stats struct {
	PayloadsTaken    uint64
	PayloadsSent     uint64
	PayloadsLost     uint64
	PayloadsLinkDown uint64 // refused with ErrLinkDown
	PayloadsLinkFull uint64 // refused with ErrLinkFull
	BundlesSent      uint64
}

// Why something was not taken.
var (
	ErrLinkDown      = errors.New("the link to the session's worker is down")
	ErrLinkFull      = errors.New("the link to the session's worker is full")
	ErrPayloadLength = errors.New("a payload has 1 to 1200 bytes, or 1472 for a plain listener's player")
	ErrNotAChoice    = errors.New("only the gateway closes for this reason")
	ErrMessageLength = errors.New("a message has 1 to 65536 bytes on a reliable channel, to 1159 on another, as a payload for a player who gets messages")
	ErrNoMessages    = errors.New("the gateway is of an earlier version and takes no messages")
	ErrNoDelivery    = errors.New("the player gets no messages, or has left")
	ErrNoChannel     = errors.New("there is no such channel")
	ErrFarewell      = errors.New("a player is told at most 200 bytes")
	ErrNoMoves       = errors.New("the gateway is of an earlier version and moves nobody")
	ErrName          = errors.New("a backend's name has 1 to 32 printable ASCII characters")
	ErrMoveLength    = errors.New("a move has at most 1024 bytes for the other process")
	ErrFreed         = errors.New("the backend was closed")
)

// Why a link is down where the gateway did not say it.
var (
	ErrHungUp          = errors.New("the gateway has hung up without a word: it was stopped, or crashed")
	ErrWelcomeExpected = errors.New("the gateway did not begin with one welcome")
	ErrVersion         = errors.New("the gateway has chosen a version that was not offered")
)

// FormatError is a Loss: the gateway broke the format.
type FormatError struct{ How RecordError }

func (e *FormatError) Error() string { return "the gateway broke the format: " + e.How.String() }

// Goodbye is a Loss: the gateway has closed the link.
type Goodbye struct {
	Reason GoodbyeReason
	How    RecordError // where the reason is GoodbyeRecordInvalid
}

func (g *Goodbye) Error() string {
	text := "the gateway has closed the link: " + g.Reason.String()
	if g.How != ErrorNone {
		text += " (" + g.How.String() + ")"
	}
	switch g.Reason {
	case GoodbyeNameTaken:
		text += "; another process is connected as this backend: end it, or use another name"
	case GoodbyeNameUnknown:
		text += "; the gateway's config has no [[backend]] of this name with link = \"bundle\""
	case GoodbyeUnauthorised:
		text += "; run as the gateway's user, or list this user in the backend's allow_uids or allow_gids"
	case GoodbyeVersionUnsupported:
		text += "; gateway and library have no version of the link in common: update the older one"
	}
	return text
}

// Backend is a game process's connection to every worker of a gateway.
type Backend struct {
	options  Options
	links    []*link
	workers  int
	arrivals chan arrival
	buffers  chan *[BundleBytesMax + 1]byte
	stats    Stats
	isFreed  bool

	registration registration
	// No other start of this process has it.
	instance uint64

	// What is being read: the datagram, whose it is, and what is left of it.
	reading arrival
	unread  []byte
	// How many arrivals this turn may still look at.
	turnLeft int
	names    map[string]string
	byWorker [][]SessionID

	start     time.Time
	backoff   time.Duration
	retryAt   time.Time
	willRetry bool
	timer     *time.Timer
}

const (
	defaultQueueBundles = 16
	queueBundlesMin     = (MessageBytesMax + partBytesMax - 1) / partBytesMax
	backoffMin          = 50 * time.Millisecond
	backoffMax          = 2 * time.Second
	// What may wait to be looked at, of all links together.
	arrivalsMax = 64
	// One turn ends here even where more has come, so that answers leave.
	turnArrivalsMax = 64
)

// Connect connects to a gateway that is running: it fails where nobody listens on the first
// worker's socket. The links are not up yet: each becomes a LinkUp, or a LinkLost that says why the
// gateway refuses it.
func Connect(runDir, name string) (*Backend, error) {
	return Options{RunDir: runDir, Name: name}.Connect()
}

// Connect connects as the options say.
func (o Options) Connect() (*Backend, error) {
	if !isName(o.Name) {
		return nil, fmt.Errorf("%q cannot name a backend: 1 to %d printable ASCII characters", o.Name, NameBytesMax)
	}
	if o.QueueBundles == 0 {
		o.QueueBundles = defaultQueueBundles
	}
	if o.QueueBundles < 0 {
		return nil, fmt.Errorf("a queue of %d bundles takes nothing", o.QueueBundles)
	}
	if o.QueueBundles < queueBundlesMin {
		o.QueueBundles = queueBundlesMin
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var instance [8]byte
	if _, err := rand.Read(instance[:]); err != nil {
		return nil, fmt.Errorf("no random numbers: %w", err)
	}
	b := &Backend{
		instance: binary.LittleEndian.Uint64(instance[:]),
		options:  o, workers: 1, backoff: backoffMin, start: time.Now(), timer: timer,
		arrivals: make(chan arrival, arrivalsMax), buffers: make(chan *[BundleBytesMax + 1]byte, arrivalsMax),
		names: map[string]string{}, turnLeft: turnArrivalsMax,
	}
	b.addLink()
	if o.MayStartAlone {
		b.openLinks()
	} else if err := b.openLink(b.links[0]); errors.Is(err, syscall.EAGAIN) {
		b.retryLater() // It listens, and many others connect as well.
	} else if err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Backend) addLink() {
	b.links = append(b.links, &link{worker: len(b.links), bundlesMax: b.options.QueueBundles})
}

func (b *Backend) openLink(l *link) error {
	path := filepath.Join(b.options.RunDir, fmt.Sprintf("worker-%d.sock", l.worker))
	return l.open(path, b.options.Name, b.arrivals, b.buffers)
}

// Opens every link that should be there and is not, and has the process registered.
func (b *Backend) openLinks() {
	b.register()
	for len(b.links) < b.workers {
		b.addLink()
	}
	for _, l := range b.links[:b.workers] {
		if l.socket == nil && b.openLink(l) != nil {
			b.retryLater()
		}
	}
}

func (b *Backend) register() {
	if !b.registration.say(b.options.RunDir, b.arrivals) {
		b.retryLater()
	}
}

// Each time without a welcome in between takes twice as long.
func (b *Backend) retryLater() {
	if !b.willRetry {
		b.willRetry = true
		b.retryAt = time.Now().Add(b.backoff)
		if b.backoff *= 2; b.backoff > backoffMax {
			b.backoff = backoffMax
		}
	}
}

// Close hangs up on every worker. The backend is of no use afterwards.
func (b *Backend) Close() {
	for _, l := range b.links {
		b.stats.PayloadsLost += l.close()
	}
	b.registration.close()
	b.isFreed, b.willRetry, b.unread = true, false, nil
}

// Wait flushes, then waits until Next has something to do, or for so long: not at all below 0, which
// is a deadline that has passed. It fails only once the backend was closed.
func (b *Backend) Wait(timeout time.Duration) error {
	if timeout < 0 {
		timeout = 0
	}
	return b.waitUntil(time.Now().Add(timeout))
}

// WaitForever is like Wait, for as long as it takes.
func (b *Backend) WaitForever() error {
	return b.waitUntil(time.Time{})
}

// Waits without an end where the deadline is zero.
func (b *Backend) waitUntil(deadline time.Time) error {
	if b.isFreed {
		return ErrFreed
	}
	b.Flush()
	if b.reading.socket != nil {
		return nil
	}
	for {
		end := deadline
		if b.willRetry && (end.IsZero() || b.retryAt.Before(end)) {
			end = b.retryAt
		}
		if !b.await(end) {
			if b.isCurrent() {
				return nil
			}
			b.done()
			continue
		}
		if b.willRetry && !time.Now().Before(b.retryAt) {
			b.willRetry = false
			b.openLinks()
		} else {
			return nil
		}
	}
}

// Takes the next arrival. Returns whether the time was over before one came.
func (b *Backend) await(end time.Time) (isLate bool) {
	select {
	case b.reading = <-b.arrivals:
		b.unread = b.reading.bytes
		return false
	default:
	}
	if end.IsZero() {
		b.reading = <-b.arrivals
		b.unread = b.reading.bytes
		return false
	}
	b.timer.Reset(time.Until(end))
	select {
	case b.reading = <-b.arrivals:
		b.unread = b.reading.bytes
		if !b.timer.Stop() {
			<-b.timer.C
		}
		return false
	case <-b.timer.C:
		return true
	}
}

// Next has the next event of this turn. Where it returns false the turn is over, so flush.
func (b *Backend) Next(event *Event) bool {
	if b.willRetry && !time.Now().Before(b.retryAt) {
		b.willRetry = false
		b.openLinks()
	}
	for !b.isFreed {
		if b.reading.socket == nil && !b.take() {
			return false
		}
		if b.look(event) {
			return true
		}
	}
	return false
}

// Takes what has arrived, without waiting.
func (b *Backend) take() bool {
	if b.turnLeft == 0 {
		b.turnLeft = turnArrivalsMax
		return false
	}
	select {
	case b.reading = <-b.arrivals:
		b.unread = b.reading.bytes
		b.turnLeft--
		return true
	default:
		b.turnLeft = turnArrivalsMax
		return false
	}
}

// Looks at what is being read. Returns whether that was an event.
func (b *Backend) look(event *Event) bool {
	if !b.isCurrent() {
		b.done()
		return false
	}
	l := b.reading.link
	switch {
	case l == nil:
		b.hear()
		return false
	case b.reading.isRoom:
		b.done()
		l.awaitsRoom = false
		l.flush(&b.stats, b.arrivals)
		return false
	case b.reading.err == io.EOF:
		return b.lose(event, ErrHungUp)
	case b.reading.err != nil:
		return b.lose(event, fmt.Errorf("the link cannot be read: %w", b.reading.err))
	case len(b.reading.bytes) > BundleBytesMax:
		return b.lose(event, &FormatError{ErrorDatagramTooLong})
	case len(b.unread) == 0:
		b.done()
		return false
	}
	return b.takeRecord(event)
}

// Whether what is being read is of a connection that still is one.
func (b *Backend) isCurrent() bool {
	if b.reading.link == nil {
		return b.registration.socket == b.reading.socket
	}
	return b.reading.link.socket == b.reading.socket
}

// Hears how the registration stands.
func (b *Backend) hear() {
	before := b.registration.standing
	if !b.registration.hear(&b.reading) {
		b.retryLater()
	}
	if b.registration.standing == StandingRegistered && before != StandingRegistered {
		// Its workers hear of us now.
		b.backoff = backoffMin
	}
	b.done()
}

// The buffer of what has been read is for the next datagram.
func (b *Backend) done() {
	if b.reading.buffer != nil {
		select {
		case b.buffers <- b.reading.buffer:
		default:
		}
	}
	b.reading, b.unread = arrival{}, nil
}

func (b *Backend) takeRecord(event *Event) bool {
	l := b.reading.link
	var r record
	rest, err := takeRecord(b.unread, &r)
	if err != ErrorNone {
		return b.lose(event, &FormatError{err})
	}
	b.unread = rest
	switch {
	case r.kind == kindGoodbye:
		return b.lose(event, &Goodbye{GoodbyeReason(r.reason), r.error})
	case r.kind == kindWelcome:
		return b.welcome(event, &r)
	case l.version == 0:
		return b.lose(event, ErrWelcomeExpected)
	}
	*event = Event{
		Worker: l.worker, Session: r.session, ClientID: r.clientID, Address: r.address, Slot: r.slot,
		SlotsMax: r.slotsMax, UserData: r.userData, Bytes: r.bytes,
	}
	switch r.kind {
	case kindPayload:
		event.Kind = Payload
	case kindOpened:
		event.Kind, event.Listener, event.Delivers = Opened, b.name(r.listener), r.flag
		event.IsMoved, event.Ticket = r.isMoved, r.ticket
		l.noteOpened(r.session, r.flag)
	case kindOpenedPlain:
		event.Kind, event.Listener = OpenedPlain, b.name(r.listener)
	case kindClosed:
		delete(l.netcode, r.session)
		l.assembly.forget(r.session)
		event.Kind, event.Reason = Closed, CloseReason(r.reason)
		if _, isKnown := closeReasons[event.Reason]; !isKnown {
			event.Reason = CloseOther
		}
	case kindPong:
		event.Kind, event.RoundTrip = Pong, b.since(r.token)
	case kindDraining:
		event.Kind, event.Left = Draining, time.Duration(r.leftMs)*time.Millisecond
	case kindUndrained:
		event.Kind = Undrained
	case kindMessage:
		message, err := l.assembly.take(&r)
		if err != ErrorNone {
			return b.lose(event, &FormatError{err})
		}
		if message == nil {
			return false
		}
		event.Kind, event.Channel, event.Bytes = Message, r.channel, message
	case kindReport:
		event.Kind, event.Token, event.IsDelivered = Report, r.token, r.flag
	case kindRoom:
		event.Kind, event.IsFull, event.Waiting = Room, r.flag, int(r.waiting)
	case kindQuality:
		event.Kind, event.Waiting = Quality, int(r.waiting)
		event.RoundTrip = time.Duration(r.roundTripUs) * time.Microsecond
		event.Variation = time.Duration(r.variationUs) * time.Microsecond
		event.PacketLoss = float64(r.lossPerMille) / 1000
	case kindLingered:
		event.Kind, event.Waiting, event.IsDelivered = Lingered, int(r.waiting), r.flag
	case kindOffered:
		event.Kind, event.Offer, event.Ticket, event.Delivers = Offered, r.offer, r.ticket, r.flag
		event.Listener, event.From = b.name(r.listener), b.name(r.from)
		event.Left = time.Duration(r.leftMs) * time.Millisecond
	case kindOfferOver:
		event.Kind, event.Offer, event.Refusal = OfferOver, r.offer, knownRefusal(r.reason)
	case kindMoved:
		event.Kind, event.Ticket = Moved, r.ticket
		l.noteMoved(r.session)
		l.assembly.forget(r.session)
	case kindMoveRefused:
		event.Kind, event.Ticket, event.Refusal = MoveRefused, r.ticket, knownRefusal(r.reason)
	default:
		// Of a later version, and to be skipped.
		return false
	}
	return true
}

func knownRefusal(reason byte) MoveRefusal {
	refusal := MoveRefusal(reason)
	if _, isKnown := moveRefusals[refusal]; !isKnown {
		return MoveOther
	}
	return refusal
}

// A text for each listener and backend, made once.
func (b *Backend) name(bytes []byte) string {
	if name, isKnown := b.names[string(bytes)]; isKnown {
		return name
	}
	name := string(bytes)
	if len(b.names) < namesMax {
		b.names[name] = name
	}
	return name
}

// More of them than a gateway has.
const namesMax = 1024

func (b *Backend) welcome(event *Event, r *record) bool {
	l := b.reading.link
	switch {
	case r.version < VersionMin || r.version > VersionMax:
		return b.lose(event, ErrVersion)
	case int(r.worker) != l.worker:
		return b.lose(event, &FormatError{ErrorWorkerInvalid})
	case l.version != 0:
		return b.lose(event, ErrWelcomeExpected)
	}
	l.version = r.version
	b.workers = int(r.workers)
	b.backoff = backoffMin
	b.openLinks()
	*event = Event{
		Kind: LinkUp, Worker: l.worker, Workers: b.workers, Version: int(r.version), Incarnation: r.incarnation,
	}
	return true
}

func (b *Backend) lose(event *Event, loss error) bool {
	l := b.reading.link
	unsent := l.close()
	b.stats.PayloadsLost += unsent
	b.done()
	b.retryLater()
	*event = Event{Kind: LinkLost, Worker: l.worker, Loss: loss, Unsent: unsent}
	return true
}

func (b *Backend) now() time.Duration { return time.Since(b.start) }

// The token of a pong is what the gateway says it is.
func (b *Backend) since(token uint64) time.Duration {
	if now := uint64(b.now()); token <= now {
		return time.Duration(now - token)
	}
	return 0
}

func (b *Backend) up(worker int) *link {
	if worker < len(b.links) && b.links[worker].isUp() {
		return b.links[worker]
	}
	return nil
}

// Appends a record. Where there is no room, sending makes some, if the kernel has room.
func (b *Backend) push(l *link, write func(*bundle) bool) bool {
	if l.push(write) {
		return true
	}
	l.flush(&b.stats, b.arrivals)
	return l.isUp() && l.push(write)
}

// Send takes 1 to 1200 bytes for one player, up to 1472 for one of a plain listener, up to 1159 for
// one who gets messages. They leave with the next flush.
func (b *Backend) Send(session SessionID, payload []byte) error {
	if len(payload) == 0 || len(payload) > LongPayloadBytesMax {
		return ErrPayloadLength
	}
	l := b.up(session.Worker())
	if l == nil {
		b.stats.PayloadsLinkDown++
		return ErrLinkDown
	}
	if err := l.checkPayload(session, len(payload)); err != nil {
		return err
	}
	if !b.push(l, func(bundle *bundle) bool { return bundle.payload(session, payload) }) {
		b.stats.PayloadsLinkFull++
		return ErrLinkFull
	}
	b.stats.PayloadsTaken++
	return nil
}

// Multicast takes the same 1 to 1200 bytes for several players; they cross each link once. Returns
// for how many players it was taken; Stats say what stopped the rest. More than 1159 bytes are taken
// for none where one of the players gets messages (ErrMessageLength).
func (b *Backend) Multicast(sessions []SessionID, payload []byte) (taken int, err error) {
	if len(payload) == 0 || len(payload) > PayloadBytesMax {
		return 0, ErrPayloadLength
	}
	if len(payload) > ShortMessageBytesMax {
		for _, session := range sessions {
			if l := b.up(session.Worker()); l != nil && l.checkPayload(session, len(payload)) != nil {
				return 0, ErrMessageLength
			}
		}
	}
	for len(b.byWorker) < len(b.links) {
		b.byWorker = append(b.byWorker, nil)
	}
	for _, session := range sessions {
		if worker := session.Worker(); worker < len(b.byWorker) {
			b.byWorker[worker] = append(b.byWorker[worker], session)
		} else {
			b.stats.PayloadsLinkDown++
		}
	}
	for worker, list := range b.byWorker {
		for left := list; len(left) > 0; {
			count := len(left)
			if count > MulticastSessionsMax {
				count = MulticastSessionsMax
			}
			taken += b.multicastPart(b.up(worker), left[:count], payload)
			left = left[count:]
		}
		b.byWorker[worker] = list[:0]
	}
	return taken, nil
}

func (b *Backend) multicastPart(l *link, sessions []SessionID, payload []byte) int {
	if l == nil {
		b.stats.PayloadsLinkDown += uint64(len(sessions))
		return 0
	}
	if !b.push(l, func(bundle *bundle) bool { return bundle.multicast(sessions, payload) }) {
		b.stats.PayloadsLinkFull += uint64(len(sessions))
		return 0
	}
	b.stats.PayloadsTaken += uint64(len(sessions))
	return len(sessions)
}

// SendMessage sends a whole message to a player of a listener with delivery = "gateway". With a token
// other than 0, a Report says what became of it. What the player cannot be sent yet waits at the
// gateway; after a Room that IsFull no more should be sent on reliable channels until one that is
// not. A game that goes on all the same loses the session (CloseOverflow).
func (b *Backend) SendMessage(session SessionID, channel Channel, message []byte, token uint64) error {
	if channel.Kind < Reliable || channel.Kind > Unreliable {
		return ErrNoChannel
	}
	if len(message) == 0 || len(message) > channel.messageBytesMax() {
		return ErrMessageLength
	}
	l := b.up(session.Worker())
	switch {
	case l == nil:
		b.stats.PayloadsLinkDown++
		return ErrLinkDown
	case l.checkMessage(session) != nil:
		return l.checkMessage(session)
	case !l.pushMessage(session, channel, token, message):
		if l.flush(&b.stats, b.arrivals); !l.isUp() || !l.pushMessage(session, channel, token, message) {
			b.stats.PayloadsLinkFull++
			return ErrLinkFull
		}
	}
	b.stats.PayloadsTaken++
	return nil
}

// AskQuality asks how good the way to a player is, which Quality answers.
func (b *Backend) AskQuality(session SessionID) error {
	l := b.up(session.Worker())
	switch {
	case l == nil:
		return ErrLinkDown
	case l.checkMessage(session) != nil:
		return l.checkMessage(session)
	case !l.push(func(bundle *bundle) bool { return bundle.askQuality(session) }):
		return ErrLinkFull
	}
	return nil
}

// CloseSession ends a session. It is not lost while the link lives, however full that is; Closed
// with the same reason answers.
func (b *Backend) CloseSession(session SessionID, reason CloseReason) error {
	if !reason.isGamesChoice() {
		return ErrNotAChoice
	}
	l := b.up(session.Worker())
	if l == nil {
		return ErrLinkDown
	}
	l.pushLate(func(b *bundle) bool { return b.close(session, reason) })
	return nil
}

// CloseSessionAfter ends a session of a player who gets messages when everything that was sent on
// reliable channels has arrived, or after linger, of which more than 30 s count as that. The player's
// library has the reason and the text, if it is of this release or later. From then on nothing more
// is sent to the player; what it still sends comes. It is not lost while the link lives, and needs
// the link no more once the gateway has read it. Lingered and Closed answer. Other players, and those
// of an earlier gateway, are closed at once.
func (b *Backend) CloseSessionAfter(session SessionID, reason CloseReason, linger time.Duration, text []byte) error {
	switch {
	case !reason.isGamesChoice():
		return ErrNotAChoice
	case len(text) > FarewellBytesMax:
		return ErrFarewell
	}
	l := b.up(session.Worker())
	switch {
	case l == nil:
		return ErrLinkDown
	case l.version < versionFarewell:
		return b.CloseSession(session, reason)
	case linger < 0:
		linger = 0
	case linger > lingerMax:
		linger = lingerMax
	}
	text = append([]byte(nil), text...)
	l.pushLate(func(b *bundle) bool {
		return b.closeAfter(session, reason, uint32(linger/time.Millisecond), text)
	})
	return nil
}

// MoveSession moves a player to another game process of the gateway, if that says yes and the
// listener's config allows it (moves). Moved or MoveRefused answers, unless the session is closed
// before. Until then the player plays on here. It is not lost while the link lives. A gateway that is
// rolled back to an earlier release meanwhile answers nothing, and moves nobody.
func (b *Backend) MoveSession(session SessionID, move Move) error {
	switch {
	case !isName(move.Backend):
		return ErrName
	case len(move.Data) > MoveBytesMax:
		return ErrMoveLength
	}
	l := b.up(session.Worker())
	switch {
	case l == nil:
		return ErrLinkDown
	case l.version < versionMoves:
		return ErrNoMoves
	}
	if len(move.Message) > 0 {
		switch {
		case move.Channel.Kind < Reliable || move.Channel.Kind > Unreliable:
			return ErrNoChannel
		case len(move.Message) > ShortMessageBytesMax:
			return ErrMessageLength
		case l.checkMessage(session) != nil:
			return l.checkMessage(session)
		}
	}
	switch {
	case move.Time <= 0:
		move.Time = MoveTimeDefault
	case move.Time > MoveTimeMax:
		move.Time = MoveTimeMax
	}
	move.Message = append([]byte(nil), move.Message...)
	move.Data = append([]byte(nil), move.Data...)
	l.pushLate(func(b *bundle) bool { return b.move(session, &move) })
	return nil
}

// Answer says whether a player may come who was Offered. It is not lost while the link lives.
func (b *Backend) Answer(session SessionID, offer uint64, isWelcome bool) error {
	l := b.up(session.Worker())
	if l == nil {
		return ErrLinkDown
	}
	l.pushLate(func(b *bundle) bool { return b.answer(session, offer, isWelcome) })
	return nil
}

// The gateway waits no longer for what was sent to arrive.
const lingerMax = 30 * time.Second

// Ping asks every worker for a Pong. Returns how many were asked.
func (b *Backend) Ping() (asked int) {
	token := uint64(b.now())
	for _, l := range b.links {
		if l.isUp() && l.push(func(bundle *bundle) bool { return bundle.ping(token) }) {
			asked++
		}
	}
	return asked
}

// Flush sends what was taken: one datagram for each link, more only where one is too small. What a
// full link does not take waits until there is room.
func (b *Backend) Flush() {
	for _, l := range b.links {
		l.flush(&b.stats, b.arrivals)
	}
}

// FlushFor does the same, and waits for at most so long until all of it has left. It returns how
// many datagrams have not: a process that ends before there are none takes them along, ends of
// sessions included.
func (b *Backend) FlushFor(wait time.Duration) int {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		waiting, isFull := 0, false
		for _, l := range b.links {
			isFull = !l.sendAll(&b.stats) || isFull
			waiting += len(l.bundles)
		}
		if !isFull || time.Since(start) >= wait {
			return waiting
		}
	}
}

// Announce registers this process with the fleet of its gateway, which leads players to it from then
// on, and says anew what it is whenever that has changed: its state, its players. It stays
// registered as long as it runs, and a gateway that restarts is told again. Costs a message to the
// gateway, so a few times a second at the most. A gateway knows nobody of this name before, so
// connect with MayStartAlone; its refusals until then are of no concern.
func (b *Backend) Announce(what Announcement) error {
	if b.isFreed {
		return ErrFreed
	}
	record, err := what.encode(b.options.Name, b.instance)
	if err != nil {
		return err
	}
	if !bytes.Equal(record, b.registration.record) {
		b.registration.record, b.registration.isDue = record, true
	}
	b.register()
	return nil
}

// Standing is how the registration stands, as the gateway has said last.
func (b *Backend) Standing() Standing { return b.registration.standing }

// Workers is how many the gateway has: 1 until the first link is up.
func (b *Backend) Workers() int { return b.workers }

// IsUp says whether the links to all workers are up.
func (b *Backend) IsUp() bool {
	if len(b.links) < b.workers {
		return false
	}
	for _, l := range b.links[:b.workers] {
		if !l.isUp() {
			return false
		}
	}
	return true
}

// Stats say what became of all payloads so far.
func (b *Backend) Stats() Stats { return b.stats }
