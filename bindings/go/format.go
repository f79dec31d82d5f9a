package ringgate

// The format: what stands at which place of a record, and what of it is refused.

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// Limits of the format.
const (
	BundleBytesMax       = 16384
	PayloadBytesMax      = 1200 // of a player of netcode, and of a multicast
	LongPayloadBytesMax  = 1472 // of one player, on links from version 3 on
	UserDataBytes        = 256
	NameBytesMax         = 32
	MulticastSessionsMax = 1024
	MessageBytesMax      = 65536 // on a reliable channel
	ShortMessageBytesMax = 1159  // on another one
	FarewellBytesMax     = 200   // of the text that a player is told last
	MoveBytesMax         = 1024  // for the process that a player is moved to
	WorkersMax           = 128
)

// The versions of the format that this package speaks: all from the first to the sixth.
const (
	VersionMin = 1
	VersionMax = 6
)

const (
	// The version that brought players of plain listeners and long payloads.
	versionPlain = 3
	// The version that brought whole messages.
	versionMessages = 4
	// The version in which a session can be closed after delivery.
	versionFarewell = 5
	// The version in which players are moved from one game process to another.
	versionMoves = 6
)

// A longer message takes several records.
const partBytesMax = 16000

// NoSlot is the slot of a plain listener's player whose session is half open.
const NoSlot = ^uint32(0)

// SessionID names a session, unique under one incarnation of the gateway. Zero names none.
type SessionID uint64

// Worker is the index of the worker that owns the session.
func (s SessionID) Worker() int { return int(s >> 56) }

// String is how the gateway's documents and logs write it.
func (s SessionID) String() string { return fmt.Sprintf("%d/%d", s.Worker(), uint64(s)<<8>>8) }

// Kinds of records.
const (
	kindPayload     = 1
	kindWelcome     = 2
	kindOpened      = 3
	kindClosed      = 4
	kindPong        = 5
	kindDraining    = 6
	kindGoodbye     = 7
	kindOpenedPlain = 8
	kindMessage     = 9
	kindReport      = 10
	kindRoom        = 11
	kindQuality     = 12
	kindHello       = 16
	kindMulticast   = 17
	kindClose       = 18
	kindPing        = 19
	kindAskQuality  = 20
	kindUndrained   = 128
	kindLingered    = 131
	kindOffered     = 132
	kindOfferOver   = 133
	kindMoved       = 134
	kindMoveRefused = 135
	kindCloseAfter  = 145
	kindMove        = 146
	kindAnswer      = 147
	kindConfirm     = 148
	// Who does not know one from here on passes over it.
	kindFirstSkippable = 128
	// None of a gateway's.
	kindUnknown = 255
)

const headerBytes = 4

// The flags of an opening: the player gets messages, and has come from another process.
const (
	flagDelivers = 1
	flagMovedIn  = 2
)

// The marks of a move: the other process has the player when this one has heard that it has lost it,
// and there is a message for the player.
const (
	markConfirms   = 1
	markHasMessage = 2
)

// CloseReason says why a session ended. A game may give those from Finished on.
type CloseReason uint8

const (
	CloseOther             CloseReason = 0 // also any that a newer gateway has
	ClosePlayerLeft        CloseReason = 1
	CloseTimedOut          CloseReason = 2
	CloseSequenceGap       CloseReason = 3
	CloseSequenceExhausted CloseReason = 4
	CloseShutdown          CloseReason = 5
	CloseOperator          CloseReason = 6
	CloseUnconfigured      CloseReason = 7
	CloseDelivery          CloseReason = 8
	CloseOverflow          CloseReason = 9
	CloseNewerLogin        CloseReason = 10
	CloseMoved             CloseReason = 11 // only programs that know Moved nothing of get it
	CloseFinished          CloseReason = 128
	CloseKicked            CloseReason = 129
	CloseRefused           CloseReason = 130
	CloseGameShutdown      CloseReason = 131
)

var closeReasons = map[CloseReason]string{
	CloseOther:             "another reason",
	ClosePlayerLeft:        "the player left",
	CloseTimedOut:          "the player timed out",
	CloseSequenceGap:       "the sequence jumped too far",
	CloseSequenceExhausted: "sequence numbers are used up",
	CloseShutdown:          "the gateway shuts down",
	CloseOperator:          "closed by an operator",
	CloseUnconfigured:      "no longer configured",
	CloseDelivery:          "the player broke the delivery layer",
	CloseOverflow:          "more was sent than the player takes",
	CloseNewerLogin:        "the player has logged in again",
	CloseMoved:             "moved to another game process",
	CloseFinished:          "the game is over",
	CloseKicked:            "kicked",
	CloseRefused:           "refused by the game",
	CloseGameShutdown:      "the game shuts down",
}

func (r CloseReason) String() string { return textOr(closeReasons, r, closeReasons[CloseOther]) }

func (r CloseReason) isGamesChoice() bool {
	_, isKnown := closeReasons[r]
	return isKnown && r >= CloseFinished
}

// MoveRefusal says why a player was not moved.
type MoveRefusal uint8

const (
	MoveOther         MoveRefusal = 0 // also any that a newer gateway has
	MoveNoSuchBackend MoveRefusal = 1
	MoveItself        MoveRefusal = 2
	MoveFull          MoveRefusal = 3
	MoveNotLinked     MoveRefusal = 4 // no process is connected there
	MoveDenied        MoveRefusal = 5 // by the process there
	MoveTime          MoveRefusal = 6 // it has not answered in time
	MoveVersion       MoveRefusal = 7
	MoveFront         MoveRefusal = 8  // players of this protocol, or of servers on a udp link
	MoveNotAllowed    MoveRefusal = 9  // by the listener's config
	MoveBusy          MoveRefusal = 10 // the player is being moved already
	MoveOffers        MoveRefusal = 11 // 64 players are offered there already
	MoveClosed        MoveRefusal = 12 // nobody new is taken there, or the gateway is about to stop
	MoveSessionOver   MoveRefusal = 13
	MovePlayerFull    MoveRefusal = 14 // too much waits for the player for one message more
	MoveSourceGone    MoveRefusal = 15 // the process that the player plays with has gone
)

var moveRefusals = map[MoveRefusal]string{
	MoveOther:         "another reason",
	MoveNoSuchBackend: "no such backend",
	MoveItself:        "the player plays there",
	MoveFull:          "no slot is free there",
	MoveNotLinked:     "the game process is not connected",
	MoveDenied:        "denied by the game process",
	MoveTime:          "no answer in time",
	MoveVersion:       "the game process is too old",
	MoveFront:         "such players cannot be moved",
	MoveNotAllowed:    "not allowed by the config",
	MoveBusy:          "the player is being moved already",
	MoveOffers:        "too many players are offered there",
	MoveClosed:        "nobody new is taken there",
	MoveSessionOver:   "no such player",
	MovePlayerFull:    "too much waits for the player",
	MoveSourceGone:    "the player's game process has gone",
}

func (r MoveRefusal) String() string { return textOr(moveRefusals, r, moveRefusals[MoveOther]) }

// GoodbyeReason says why the gateway closed a link.
type GoodbyeReason uint8

const (
	GoodbyeOther              GoodbyeReason = 0 // also any that a newer gateway has
	GoodbyeShutdown           GoodbyeReason = 1
	GoodbyeVersionUnsupported GoodbyeReason = 2
	GoodbyeUnauthorised       GoodbyeReason = 3
	GoodbyeNameUnknown        GoodbyeReason = 4
	GoodbyeNameTaken          GoodbyeReason = 5
	GoodbyeHelloExpected      GoodbyeReason = 6
	GoodbyeRecordInvalid      GoodbyeReason = 7
)

var goodbyeReasons = map[GoodbyeReason]string{
	GoodbyeOther:              "another reason",
	GoodbyeShutdown:           "the gateway shuts down",
	GoodbyeVersionUnsupported: "version not supported",
	GoodbyeUnauthorised:       "peer not authorised",
	GoodbyeNameUnknown:        "no such backend",
	GoodbyeNameTaken:          "name taken",
	GoodbyeHelloExpected:      "hello expected once, first",
	GoodbyeRecordInvalid:      "invalid record",
}

func (r GoodbyeReason) String() string {
	return textOr(goodbyeReasons, r, goodbyeReasons[GoodbyeOther])
}

// RecordError says how a record breaks the format. Zero: not at all.
type RecordError uint8

const (
	ErrorNone            RecordError = 0
	ErrorHeaderTruncated RecordError = 1
	ErrorRecordLength    RecordError = 2
	ErrorKindUnknown     RecordError = 3
	ErrorFlagsUnknown    RecordError = 4
	ErrorBodyLength      RecordError = 5
	ErrorSessionZero     RecordError = 6
	ErrorPayloadLength   RecordError = 7
	ErrorNameInvalid     RecordError = 8
	ErrorSessionCount    RecordError = 9
	ErrorWorkerInvalid   RecordError = 10
	ErrorReasonUnknown   RecordError = 11
	ErrorDatagramTooLong RecordError = 12
	ErrorChannelUnknown  RecordError = 13
	ErrorMessageLength   RecordError = 14
	ErrorMessageMarks    RecordError = 15
	ErrorFarewellLength  RecordError = 16
	ErrorMoveLength      RecordError = 17
	ErrorAnswerUnknown   RecordError = 18
)

var recordErrors = map[RecordError]string{
	ErrorNone:            "no error",
	ErrorHeaderTruncated: "header truncated",
	ErrorRecordLength:    "record length out of range",
	ErrorKindUnknown:     "unknown kind",
	ErrorFlagsUnknown:    "unknown flags",
	ErrorBodyLength:      "body length does not match the kind",
	ErrorSessionZero:     "session 0",
	ErrorPayloadLength:   "payload length out of range",
	ErrorNameInvalid:     "invalid name",
	ErrorSessionCount:    "session count out of range",
	ErrorWorkerInvalid:   "worker index out of range",
	ErrorReasonUnknown:   "unknown reason",
	ErrorDatagramTooLong: "datagram too long",
	ErrorChannelUnknown:  "unknown kind of channel",
	ErrorMessageLength:   "message length out of range",
	ErrorMessageMarks:    "message begins or ends where it cannot",
	ErrorFarewellLength:  "farewell too long",
	ErrorMoveLength:      "too much data for a move",
	ErrorAnswerUnknown:   "unknown answer",
}

func (e RecordError) String() string { return textOr(recordErrors, e, "an unknown error") }

func textOr[K comparable](texts map[K]string, key K, other string) string {
	if text, isKnown := texts[key]; isKnown {
		return text
	}
	return other
}

// ChannelKind says what a channel promises.
type ChannelKind uint8

const (
	Reliable   ChannelKind = 1 // messages of up to 64 KiB that arrive once and in order
	Sequenced  ChannelKind = 2 // of up to 1159 bytes: a newer one makes older ones worthless
	Unreliable ChannelKind = 3 // of up to 1159 bytes, without promises
)

// Channel is one of a player's channels, of each kind of which there are 256.
type Channel struct {
	Kind   ChannelKind
	Number uint8
}

func (c Channel) messageBytesMax() int {
	if c.Kind == Reliable {
		return MessageBytesMax
	}
	return ShortMessageBytesMax
}

// Where in its message a part stands.
const (
	markFirst = 1
	markLast  = 2
)

// One record, as far as its kind has these fields. The slices lie in the datagram.
type record struct {
	kind         byte
	session      SessionID
	clientID     uint64
	address      netip.AddrPort
	slot         uint32
	slotsMax     uint32
	userData     []byte
	listener     []byte
	from         []byte // where an offered player plays
	bytes        []byte
	reason       byte
	error        RecordError
	token        uint64
	ticket       uint64
	offer        uint64
	isMoved      bool
	leftMs       uint32
	channel      Channel
	marks        byte
	flag         bool // delivered, or full, or the player gets messages, or was told
	waiting      uint32
	roundTripUs  uint32
	variationUs  uint32
	lossPerMille uint16
	version      uint16
	worker       uint16
	workers      uint16
	incarnation  uint64
}

// Takes the first record off a datagram. A kind that may be skipped and is not known is told as it
// is, without fields.
func takeRecord(datagram []byte, out *record) (rest []byte, err RecordError) {
	if len(datagram) < headerBytes {
		return nil, ErrorHeaderTruncated
	}
	length := int(binary.LittleEndian.Uint16(datagram))
	if length < headerBytes || length > len(datagram) {
		return nil, ErrorRecordLength
	}
	kind := datagram[2]
	*out = record{kind: kind}
	rest = datagram[length:]
	if kind >= kindFirstSkippable {
		out.skippable(datagram[3], datagram[headerBytes:length:length])
		return rest, ErrorNone
	}
	if flags := datagram[3]; flags != 0 {
		if kind != kindOpened || flags&^(flagDelivers|flagMovedIn) != 0 {
			return nil, ErrorFlagsUnknown
		}
		out.flag, out.isMoved = flags&flagDelivers != 0, flags&flagMovedIn != 0
	}
	body := body{left: datagram[headerBytes:length:length]}
	body.read(out)
	if body.err == ErrorNone && len(body.left) > 0 {
		body.err = ErrorBodyLength
	}
	if body.err == ErrorNone && kind == kindWelcome && !isWorkers(out) {
		body.err = ErrorWorkerInvalid
	}
	return rest, body.err
}

// What is not exactly this is of a later version, and means something else.
func (r *record) skippable(flags byte, bytes []byte) {
	b, known := body{left: bytes}, byte(0)
	switch r.kind {
	case kindLingered:
		r.session = b.session()
		r.waiting = b.u32()
		r.flag = b.isOne()
	case kindOffered:
		b.offered(r)
		r.flag, known = flags&flagDelivers != 0, flagDelivers
	case kindOfferOver:
		r.session = b.session()
		r.offer = b.u64()
		r.reason = b.u8()
	case kindMoved:
		r.session = b.session()
		r.ticket = b.u64()
	case kindMoveRefused:
		r.session = b.session()
		r.ticket = b.u64()
		r.reason = b.u8()
	default:
		return
	}
	if flags&^known != 0 || b.err != ErrorNone || len(b.left) > 0 {
		r.kind = kindUnknown
	}
}

func (b *body) isOne() bool {
	value := b.u8()
	if value > 1 {
		b.fail(ErrorBodyLength)
	}
	return value == 1
}

func (b *body) offered(out *record) {
	out.session = b.session()
	out.offer, out.ticket, out.clientID = b.u64(), b.u64(), b.u64()
	out.slot, out.slotsMax = b.u32(), b.u32()
	out.address = b.address()
	out.leftMs = b.u32()
	out.userData = b.take(UserDataBytes)
	out.listener = b.nameOf(int(b.u8()))
	out.from = b.nameOf(int(b.u8()))
	out.bytes, b.left = b.left, nil
	if len(out.bytes) > MoveBytesMax {
		b.fail(ErrorMoveLength)
	}
}

func isWorkers(welcome *record) bool {
	return welcome.worker < welcome.workers && welcome.workers <= WorkersMax
}

// What is left of a record's body, and the first thing that was wrong with it.
type body struct {
	left []byte
	err  RecordError
}

func (b *body) read(out *record) {
	switch out.kind {
	case kindPayload:
		out.session = b.session()
		out.bytes = b.payload()
	case kindWelcome:
		out.version, out.worker, out.workers = b.u16(), b.u16(), b.u16()
		out.incarnation = b.u64()
	case kindOpened:
		out.session = b.session()
		out.clientID = b.u64()
		out.slot, out.slotsMax = b.u32(), b.u32()
		out.address = b.address()
		out.userData = b.take(UserDataBytes)
		if out.isMoved {
			out.ticket = b.u64()
		}
		out.listener = b.name()
	case kindOpenedPlain:
		out.session = b.session()
		out.slot, out.slotsMax = b.u32(), b.u32()
		out.address = b.address()
		out.listener = b.name()
	case kindClosed:
		out.session = b.session()
		out.reason = b.u8()
	case kindPong:
		out.token = b.u64()
	case kindDraining:
		out.leftMs = b.u32()
	case kindMessage:
		b.message(out)
	case kindReport:
		out.session = b.session()
		out.token = b.u64()
		out.flag = b.u8() != 0
	case kindRoom:
		out.session = b.session()
		out.flag = b.u8() != 0
		out.waiting = b.u32()
	case kindQuality:
		out.session = b.session()
		out.roundTripUs, out.variationUs = b.u32(), b.u32()
		out.lossPerMille = b.u16()
		out.waiting = b.u32()
	case kindGoodbye:
		out.reason = b.u8()
		out.error = RecordError(b.u8())
	default:
		b.fail(ErrorKindUnknown)
	}
}

func (b *body) fail(err RecordError) {
	if b.err == ErrorNone {
		b.err = err
	}
}

// Zeros where the record is too short, so that callers need not look each time.
func (b *body) take(count int) []byte {
	if len(b.left) < count || b.err != ErrorNone {
		b.fail(ErrorBodyLength)
		return zeros[:count]
	}
	field := b.left[:count:count]
	b.left = b.left[count:]
	return field
}

var zeros [UserDataBytes]byte

func (b *body) u8() byte    { return b.take(1)[0] }
func (b *body) u16() uint16 { return binary.LittleEndian.Uint16(b.take(2)) }
func (b *body) u32() uint32 { return binary.LittleEndian.Uint32(b.take(4)) }
func (b *body) u64() uint64 { return binary.LittleEndian.Uint64(b.take(8)) }

func (b *body) session() SessionID {
	session := SessionID(b.u64())
	if session == 0 {
		b.fail(ErrorSessionZero)
	}
	return session
}

// A payload has no length of its own: it is the rest of its record.
func (b *body) payload() []byte {
	payload := b.left
	b.left = nil
	if len(payload) == 0 || len(payload) > LongPayloadBytesMax {
		b.fail(ErrorPayloadLength)
	}
	return payload
}

// A message, like a payload, is the rest of its record.
func (b *body) message(out *record) {
	out.session = b.session()
	out.channel = Channel{ChannelKind(b.u8()), b.u8()}
	out.marks = b.u8()
	out.token = b.u64()
	out.bytes = b.left
	b.left = nil
	isWhole := out.marks == markFirst|markLast
	switch {
	case b.err != ErrorNone:
	case out.channel.Kind < Reliable || out.channel.Kind > Unreliable:
		b.fail(ErrorChannelUnknown)
	case out.marks > markFirst|markLast:
		b.fail(ErrorMessageMarks)
	case len(out.bytes) == 0 || len(out.bytes) > partBytesMax || len(out.bytes) > out.channel.messageBytesMax():
		b.fail(ErrorMessageLength)
	case out.channel.Kind != Reliable && !isWhole:
		b.fail(ErrorMessageMarks)
	}
}

// A message of a link that is being put together.
type assembly struct {
	session SessionID // 0: none has begun
	channel Channel
	bytes   []byte
}

// Takes a part. Returns the message where it is complete.
func (a *assembly) take(r *record) (message []byte, err RecordError) {
	// A message that is not reliable comes beside a trunk's stream, and so between the parts of one.
	if r.marks == markFirst|markLast && (a.session == 0 || r.channel.Kind != Reliable) {
		return r.bytes, ErrorNone
	}
	if r.marks&markFirst != 0 {
		if a.session != 0 {
			return nil, ErrorMessageMarks
		}
		a.session, a.channel, a.bytes = r.session, r.channel, a.bytes[:0]
	}
	if a.session != r.session || a.channel != r.channel {
		return nil, ErrorMessageMarks
	}
	if len(a.bytes)+len(r.bytes) > MessageBytesMax {
		return nil, ErrorMessageLength
	}
	a.bytes = append(a.bytes, r.bytes...)
	if r.marks&markLast == 0 {
		return nil, ErrorNone
	}
	a.session = 0
	return a.bytes, ErrorNone
}

// Nothing follows of what has begun for a session.
func (a *assembly) forget(session SessionID) {
	if a.session == session {
		a.session = 0
	}
}

// A name, like a payload, is the rest of its record.
func (b *body) name() []byte { return b.nameOf(len(b.left)) }

func (b *body) nameOf(length int) []byte {
	if length > NameBytesMax {
		b.fail(ErrorNameInvalid)
		length = 0
	}
	name := b.take(length)
	if !isName(name) {
		b.fail(ErrorNameInvalid)
	}
	return name
}

func isName[T string | []byte](name T) bool {
	for at := 0; at < len(name); at++ {
		if name[at] < 0x21 || name[at] > 0x7e {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= NameBytesMax
}

func (b *body) address() netip.AddrPort {
	ip := netip.AddrFrom16(*(*[16]byte)(b.take(16))).Unmap()
	scope := b.u32()
	if scope != 0 && ip.Is6() {
		ip = ip.WithZone(fmt.Sprint(scope))
	}
	return netip.AddrPortFrom(ip, b.u16())
}

// What is appended to a bundle. Each leaves it as it was where the record does not fit.
type bundle struct {
	bytes    [BundleBytesMax]byte
	length   int
	payloads uint64
}

func (b *bundle) begin(kind byte, bodyBytes int) []byte {
	length := headerBytes + bodyBytes
	if b.length+length > BundleBytesMax {
		return nil
	}
	record := b.bytes[b.length : b.length+length]
	b.length += length
	binary.LittleEndian.PutUint16(record, uint16(length))
	record[2], record[3] = kind, 0
	return record[headerBytes:]
}

func (b *bundle) payload(session SessionID, payload []byte) bool {
	body := b.begin(kindPayload, 8+len(payload))
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	copy(body[8:], payload)
	b.payloads++
	return true
}

func (b *bundle) multicast(sessions []SessionID, payload []byte) bool {
	body := b.begin(kindMulticast, 2+8*len(sessions)+len(payload))
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint16(body, uint16(len(sessions)))
	for at, session := range sessions {
		binary.LittleEndian.PutUint64(body[2+8*at:], uint64(session))
	}
	copy(body[2+8*len(sessions):], payload)
	b.payloads += uint64(len(sessions))
	return true
}

func (b *bundle) message(session SessionID, channel Channel, marks byte, token uint64, part []byte) bool {
	body := b.begin(kindMessage, 19+len(part))
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	body[8], body[9], body[10] = byte(channel.Kind), channel.Number, marks
	binary.LittleEndian.PutUint64(body[11:], token)
	copy(body[19:], part)
	if marks&markLast != 0 {
		b.payloads++
	}
	return true
}

func (b *bundle) askQuality(session SessionID) bool {
	body := b.begin(kindAskQuality, 8)
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	return true
}

func (b *bundle) close(session SessionID, reason CloseReason) bool {
	body := b.begin(kindClose, 9)
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	body[8] = byte(reason)
	return true
}

func (b *bundle) closeAfter(session SessionID, reason CloseReason, lingerMs uint32, text []byte) bool {
	body := b.begin(kindCloseAfter, 13+len(text))
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	body[8] = byte(reason)
	binary.LittleEndian.PutUint32(body[9:], lingerMs)
	copy(body[13:], text)
	return true
}

func (b *bundle) move(session SessionID, move *Move) bool {
	messageBytes := 0
	if len(move.Message) > 0 {
		messageBytes = 4 + len(move.Message)
	}
	body := b.begin(kindMove, 22+len(move.Backend)+messageBytes+len(move.Data))
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	binary.LittleEndian.PutUint64(body[8:], move.Ticket)
	binary.LittleEndian.PutUint32(body[16:], uint32(move.Time/time.Millisecond))
	body[20], body[21] = 0, byte(len(move.Backend))
	if move.Confirms {
		body[20] |= markConfirms
	}
	rest := body[22+copy(body[22:], move.Backend):]
	if messageBytes > 0 {
		body[20] |= markHasMessage
		rest[0], rest[1] = byte(move.Channel.Kind), move.Channel.Number
		binary.LittleEndian.PutUint16(rest[2:], uint16(len(move.Message)))
		copy(rest[4:], move.Message)
	}
	copy(rest[messageBytes:], move.Data)
	return true
}

func (b *bundle) answer(session SessionID, offer uint64, isWelcome bool) bool {
	body := b.begin(kindAnswer, 17)
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	binary.LittleEndian.PutUint64(body[8:], offer)
	body[16] = 0
	if isWelcome {
		body[16] = 1
	}
	return true
}

func (b *bundle) confirm(session SessionID) bool {
	body := b.begin(kindConfirm, 8)
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, uint64(session))
	return true
}

func (b *bundle) ping(token uint64) bool {
	body := b.begin(kindPing, 8)
	if body == nil {
		return false
	}
	binary.LittleEndian.PutUint64(body, token)
	return true
}

func (b *bundle) hello(pid int, name string, highest byte) {
	body := b.begin(kindHello, 6+len(name))
	binary.LittleEndian.PutUint16(body, VersionMin)
	// Linux has no process id of more than three bytes.
	body[2], body[3], body[4] = byte(pid), byte(pid>>8), byte(pid>>16)
	body[5] = highest
	copy(body[6:], name)
}
