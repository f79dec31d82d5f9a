package ringgate

// The format against docs/PROTOCOLS.md: every example decodes to what stands under it, or is what
// this package writes.

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

type example struct {
	direction string
	bytes     []byte
	meaning   string
}

func examples(t *testing.T) (all []example) { return blocks(t, "record") }

// The fenced blocks of the document: the direction, the bytes, and what they are said to mean.
func blocks(t *testing.T, fence string) (all []example) {
	document, err := os.ReadFile("../../docs/PROTOCOLS.md")
	if err != nil {
		t.Skip("the document is not there: ", err)
	}
	for _, rest := range strings.Split(string(document), "```"+fence+" ")[1:] {
		block, _, _ := strings.Cut(rest, "\n```")
		direction, block, _ := strings.Cut(block, "\n")
		dump, meaning, _ := strings.Cut(block, "\n= ")
		var raw []byte
		for _, line := range strings.Split(dump, "\n") {
			digits, count, isRun := strings.Cut(line, "*")
			part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			if isRun {
				times, _ := strconv.Atoi(strings.TrimSpace(count))
				part = bytes.Repeat(part, times)
			}
			raw = append(raw, part...)
		}
		all = append(all, example{direction, raw, meaning})
	}
	return all
}

func describe(r *record) string {
	switch r.kind {
	case kindWelcome:
		return fmt.Sprintf("welcome: version %d, worker %d of %d, incarnation %d", r.version, r.worker, r.workers, r.incarnation)
	case kindOpened:
		delivers := ""
		if r.flag {
			delivers = ", gets messages"
		}
		if r.isMoved {
			delivers += fmt.Sprintf(", moved by ticket %d", r.ticket)
		}
		return fmt.Sprintf("opened: session %v, client %d at %v, slot %d of %d%s, listener %s, user data %q",
			r.session, r.clientID, r.address, r.slot, r.slotsMax, delivers, r.listener, bytes.TrimRight(r.userData, "\x00"))
	case kindOpenedPlain:
		slot := "none yet"
		if r.slot != NoSlot {
			slot = fmt.Sprint(r.slot)
		}
		return fmt.Sprintf("opened_plain: session %v at %v, slot %s, of %d, listener %s", r.session, r.address, slot, r.slotsMax, r.listener)
	case kindPayload:
		return fmt.Sprintf("payload: session %v, %q", r.session, r.bytes)
	case kindClosed:
		return fmt.Sprintf("closed: session %v, %v", r.session, CloseReason(r.reason))
	case kindPong:
		return fmt.Sprintf("pong: token %d", r.token)
	case kindDraining:
		return fmt.Sprintf("draining: %d ms left", r.leftMs)
	case kindUndrained:
		return "undrained"
	case kindMessage:
		marks := ""
		if r.marks&markFirst != 0 {
			marks += "begins, "
		}
		if r.marks&markLast != 0 {
			marks += "ends, "
		}
		kind := map[ChannelKind]string{Reliable: "reliable", Sequenced: "sequenced", Unreliable: "unreliable"}[r.channel.Kind]
		return fmt.Sprintf("message: session %v, %s channel %d, %stoken %d, %q", r.session, kind, r.channel.Number, marks, r.token, r.bytes)
	case kindReport:
		if r.flag {
			return fmt.Sprintf("report: session %v, token %d, delivered", r.session, r.token)
		}
		return fmt.Sprintf("report: session %v, token %d, lost", r.session, r.token)
	case kindRoom:
		if r.flag {
			return fmt.Sprintf("room: session %v, full, %d bytes wait", r.session, r.waiting)
		}
		return fmt.Sprintf("room: session %v, %d bytes wait", r.session, r.waiting)
	case kindQuality:
		return fmt.Sprintf("quality: session %v, round trip %d us, variation %d us, loss %d per mille, %d bytes wait",
			r.session, r.roundTripUs, r.variationUs, r.lossPerMille, r.waiting)
	case kindLingered:
		told := "not told"
		if r.flag {
			told = "told"
		}
		return fmt.Sprintf("lingered: session %v, %d bytes undelivered, %s", r.session, r.waiting, told)
	case kindOffered:
		return fmt.Sprintf("offered: session %v, offer %d, ticket %d, client %d at %v, slot %d of %d, within %d ms, "+
			"listener %s, from %s, user data %q, with %q", r.session, r.offer, r.ticket, r.clientID, r.address, r.slot,
			r.slotsMax, r.leftMs, r.listener, r.from, bytes.TrimRight(r.userData, "\x00"), r.bytes)
	case kindOfferOver:
		return fmt.Sprintf("offer_over: session %v, offer %d, %v", r.session, r.offer, MoveRefusal(r.reason))
	case kindMoved:
		return fmt.Sprintf("moved: session %v, ticket %d", r.session, r.ticket)
	case kindMoveRefused:
		return fmt.Sprintf("move_refused: session %v, ticket %d, %v", r.session, r.ticket, MoveRefusal(r.reason))
	case kindGoodbye:
		if r.error != ErrorNone {
			return fmt.Sprintf("goodbye: %v (%v)", GoodbyeReason(r.reason), r.error)
		}
		return fmt.Sprintf("goodbye: %v", GoodbyeReason(r.reason))
	}
	return fmt.Sprint("kind ", r.kind)
}

// What the document's examples towards the gateway say, written by this package.
func written(meaning string) []byte {
	var b bundle
	switch kind, _, _ := strings.Cut(meaning, ":"); kind {
	case "hello":
		b.hello(4321, "arena-1", 3)
	case "payload":
		b.payload(3<<56|9, []byte("input"))
	case "multicast":
		b.multicast([]SessionID{3<<56 | 9, 3<<56 | 10}, []byte("state"))
	case "close":
		b.close(3<<56|9, CloseKicked)
	case "close_after":
		b.closeAfter(3<<56|9, CloseKicked, 5000, []byte("be nice"))
	case "message":
		b.message(3<<56|9, Channel{Reliable, 2}, markFirst, 5, []byte("long"))
	case "ask_quality":
		b.askQuality(3<<56 | 9)
	case "move":
		move := Move{Backend: "arena-1", Ticket: 12, Time: MoveTimeDefault, Data: []byte("level 3")}
		if strings.Contains(meaning, "confirmed") {
			move.Confirms, move.Channel, move.Message, move.Data = true, Channel{Reliable, 0}, []byte("door"), nil
		}
		b.move(3<<56|9, &move)
	case "answer":
		b.answer(3<<56|9, 4, true)
	case "confirm":
		b.confirm(3<<56 | 9)
	case "ping":
		b.ping(1234605616436508552)
	}
	return b.bytes[:b.length]
}

func TestExamplesOfTheDocument(t *testing.T) {
	toGame, toGateway := 0, 0
	for _, it := range examples(t) {
		// Kinds of versions that this package does not speak have examples of their own.
		if isNewer(it.bytes) {
			continue
		}
		if it.direction == "to-gateway" {
			if got := written(it.meaning); !bytes.Equal(got, it.bytes) {
				t.Errorf("%s is written as % x", it.meaning, got)
			}
			toGateway++
			continue
		}
		var r record
		rest, err := takeRecord(it.bytes, &r)
		if err != ErrorNone || len(rest) > 0 || describe(&r) != it.meaning {
			t.Errorf("%q is read as %q, %v, %d bytes left", it.meaning, describe(&r), err, len(rest))
		}
		toGame++
	}
	if toGame < 14 || toGateway < 8 {
		t.Errorf("only %d and %d examples were found", toGame, toGateway)
	}
}

func isNewer(record []byte) bool {
	kind := record[2]
	switch kind {
	case kindLingered, kindOffered, kindOfferOver, kindMoved, kindMoveRefused,
		kindCloseAfter, kindMove, kindAnswer, kindConfirm:
		return false
	}
	return kind > kindQuality && kind < kindHello || kind > kindAskQuality && kind < kindFirstSkippable || kind > kindUndrained
}

func TestTablesOfTheDocument(t *testing.T) {
	raw, err := os.ReadFile("../../docs/PROTOCOLS.md")
	if err != nil {
		t.Skip("the document is not there: ", err)
	}
	document := string(raw)
	for reason, text := range closeReasons {
		wantRow(t, document, int(reason), text)
	}
	for reason, text := range goodbyeReasons {
		wantRow(t, document, int(reason), text)
	}
	for refusal, text := range moveRefusals {
		wantRow(t, document, int(refusal), text)
	}
	for how, text := range recordErrors {
		if how != ErrorNone {
			wantRow(t, document, int(how), text)
		}
	}
}

func wantRow(t *testing.T, document string, number int, text string) {
	t.Helper()
	if row := fmt.Sprintf("| %d | %s |", number, text); !strings.Contains(document, row) {
		t.Errorf("the document has no row %q", row)
	}
}

func TestWhatBreaksTheFormat(t *testing.T) {
	session := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	frame := func(kind, flags byte, body ...byte) []byte {
		length := headerBytes + len(body)
		return append([]byte{byte(length), byte(length >> 8), kind, flags}, body...)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	cases := []struct {
		name  string
		bytes []byte
		want  RecordError
	}{
		{"nothing", []byte{}, ErrorHeaderTruncated},
		{"three bytes", []byte{4, 0, 128}, ErrorHeaderTruncated},
		{"shorter than its header", []byte{3, 0, 128, 0}, ErrorRecordLength},
		{"longer than its datagram", []byte{5, 0, 128, 0}, ErrorRecordLength},
		{"a kind of the other direction", frame(kindPing, 0, session...), ErrorKindUnknown},
		{"a flag", frame(kindPong, 1, session...), ErrorFlagsUnknown},
		{"an opening's flag elsewhere", frame(kindOpenedPlain, 1, session...), ErrorFlagsUnknown},
		{"an opening's flag of a later version", frame(kindOpened, 7, session...), ErrorFlagsUnknown},
		{"half an opening", frame(kindOpened, 1, session...), ErrorBodyLength},
		{"half an opening of a player who was moved", frame(kindOpened, 3, join(session, make([]byte, 38+UserDataBytes+7))...), ErrorBodyLength},
		{"a short pong", frame(kindPong, 0, 1, 2), ErrorBodyLength},
		{"a long pong", frame(kindPong, 0, join(session, []byte{1})...), ErrorBodyLength},
		{"no session", frame(kindPayload, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), ErrorSessionZero},
		{"no payload", frame(kindPayload, 0, session...), ErrorPayloadLength},
		{"a long payload", frame(kindPayload, 0, join(session, make([]byte, LongPayloadBytesMax+1))...), ErrorPayloadLength},
		{"no name", frame(kindOpenedPlain, 0, join(session, make([]byte, 30))...), ErrorNameInvalid},
		{"a name with a space", frame(kindOpenedPlain, 0, join(session, make([]byte, 30), []byte("a b"))...), ErrorNameInvalid},
		{"worker 1 of 1", frame(kindWelcome, 0, 3, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0), ErrorWorkerInvalid},
		{"a channel of no kind", frame(kindMessage, 0, join(session, []byte{4, 0, 3}, session, []byte{1})...), ErrorChannelUnknown},
		{"a mark of no meaning", frame(kindMessage, 0, join(session, []byte{1, 0, 4}, session, []byte{1})...), ErrorMessageMarks},
		{"an empty message", frame(kindMessage, 0, join(session, []byte{1, 0, 3}, session)...), ErrorMessageLength},
		{"a part of an unreliable message", frame(kindMessage, 0, join(session, []byte{3, 0, 1}, session, []byte{1})...), ErrorMessageMarks},
		{"a long unreliable message", frame(kindMessage, 0, join(session, []byte{3, 0, 3}, session, make([]byte, ShortMessageBytesMax+1))...), ErrorMessageLength},
		{"half a report", frame(kindReport, 0, session...), ErrorBodyLength},
		{"a lingered of a later version", frame(kindLingered, 0, join(session, []byte{1, 0, 0, 0, 1, 1})...), ErrorNone},
		{"a later hint", frame(200, 255, 1, 2, 3), ErrorNone},
		{"an undrained of a later version", frame(kindUndrained, 7, 1, 2, 3), ErrorNone},
	}
	for _, it := range cases {
		var r record
		if _, got := takeRecord(it.bytes, &r); got != it.want {
			t.Errorf("%s: %v instead of %v", it.name, got, it.want)
		}
	}
}

// A trunk has what is reliable in its stream and the rest in datagrams, which may come first.
func TestMessagesPassOneThatHasBegunUnlessBothAreReliable(t *testing.T) {
	begun := record{kind: kindMessage, session: 9, channel: Channel{Reliable, 1}, marks: markFirst, bytes: []byte("a")}
	whole := record{kind: kindMessage, session: 8, marks: markFirst | markLast, bytes: []byte("b")}
	for kind, want := range map[ChannelKind]RecordError{Reliable: ErrorMessageMarks, Sequenced: ErrorNone, Unreliable: ErrorNone} {
		var a assembly
		if _, err := a.take(&begun); err != ErrorNone {
			t.Fatal(err)
		}
		whole.channel = Channel{kind, 2}
		message, err := a.take(&whole)
		if err != want || (err == ErrorNone && string(message) != "b") {
			t.Errorf("kind %v: %q, %v", kind, message, err)
		}
	}
}

func FuzzTakeRecord(f *testing.F) {
	f.Add(append([]byte{14, 0, kindOffered, 0}, make([]byte, 10)...))
	f.Add([]byte{4, 0, 128, 0, 13, 0, 4, 0, 9, 0, 0, 0, 0, 0, 0, 3, 129})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		for left := datagram; len(left) > 0; {
			var r record
			rest, err := takeRecord(left, &r)
			if err != ErrorNone {
				return
			}
			if len(rest) >= len(left) {
				t.Fatal("a record has no bytes")
			}
			left = rest
		}
	})
}
