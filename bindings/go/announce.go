package ringgate

// How a game process registers itself: what it says to the gateway's announce socket, and what it is
// answered.

import (
	"encoding/binary"
	"errors"
	"sort"
	"unicode"
	"unicode/utf8"
)

// State is what a game process is ready for.
type State uint8

const (
	StateStarting  State = 0 // not yet for players
	StateReady     State = 1 // for anybody
	StateAllocated State = 2 // for those whom a matchmaker has sent
	StateDraining  State = 3 // for those who are there
)

// Announcement says what a game process is.
type Announcement struct {
	Group string // which listeners of the fleet lead to it
	Slots uint32 // how many players it takes: 1 to SlotsMax
	State State  // the zero is StateStarting
	// Whether Players is how many it has. Otherwise the gateway counts them.
	CountsPlayers bool
	Players       uint32
	// What a matchmaker can choose it by, LabelsMax of them at most: a name as a group's, and UTF-8 of
	// at most 255 bytes without control characters.
	Labels map[string]string
}

// Limits of announcements.
const (
	SlotsMax  = 1_000_000
	LabelsMax = 32
)

// ErrAnnouncement is what cannot be said: also the name of a backend that has more than 31 bytes, or
// others than letters, digits, '.', '_' and '-', or does not begin with a letter or a digit.
var ErrAnnouncement = errors.New("an announcement with a name, a group, labels, slots or players that cannot be")

// Standing is what has become of an announcement.
type Standing uint8

const (
	StandingWaiting      Standing = 0 // the gateway is not there, or cannot reach the fleet now
	StandingRegistered   Standing = 1
	StandingNameTaken    Standing = 2   // by another process, at this gateway or at another one
	StandingNameInConfig Standing = 3   // a [[backend]] in the gateway's config has it
	StandingTooMany      Standing = 4   // the gateway takes no more of the fleet
	StandingUnauthorised Standing = 5   // this user may not
	StandingInvalid      Standing = 6   // the gateway does not understand it
	StandingRefused      Standing = 255 // also what a newer gateway says
)

var standings = map[Standing]string{
	StandingWaiting:      "waits for the gateway and its fleet",
	StandingRegistered:   "registered",
	StandingNameTaken:    "another process has the name",
	StandingNameInConfig: "the gateway's config has a [[backend]] of the name",
	StandingTooMany:      "the gateway takes no more game processes (fleet.max_backends)",
	StandingUnauthorised: "the user may not: run as the gateway's, or list this one in fleet.allow_uids",
	StandingInvalid:      "the gateway does not understand the announcement",
	StandingRefused:      "refused for another reason",
}

func (s Standing) String() string { return textOr(standings, s, standings[StandingRefused]) }

const (
	// Not those of records on bundle links, so that neither is taken for the other.
	kindAnnounce = 112
	kindStanding = 113

	announceVersion   = 1
	announceNameMax   = 31
	labelNameMax      = 64
	labelValueMax     = 255
	playersUncounted  = ^uint32(0)
	standingBytesRead = 64
)

// The record that says this of a process: by its name, and by a number that no other start of it has.
func (a *Announcement) encode(name string, instance uint64) ([]byte, error) {
	isFit := isLabelName(name) && len(name) <= announceNameMax && isLabelName(a.Group) &&
		a.Slots >= 1 && a.Slots <= SlotsMax && a.State <= StateDraining && len(a.Labels) <= LabelsMax &&
		!(a.CountsPlayers && a.Players == playersUncounted)
	if !isFit {
		return nil, ErrAnnouncement
	}
	players := playersUncounted
	if a.CountsPlayers {
		players = a.Players
	}
	record := []byte{0, 0, kindAnnounce, 0, announceVersion, 0, byte(a.State), byte(len(a.Labels))}
	record = binary.LittleEndian.AppendUint32(record, a.Slots)
	record = binary.LittleEndian.AppendUint32(record, players)
	record = binary.LittleEndian.AppendUint64(record, instance)
	record = appendText(appendText(record, name), a.Group)
	// In one order, so that what has not changed is not said again.
	names := make([]string, 0, len(a.Labels))
	for label := range a.Labels {
		names = append(names, label)
	}
	sort.Strings(names)
	for _, label := range names {
		value := a.Labels[label]
		if !isLabelName(label) || !isLabelValue(value) {
			return nil, ErrAnnouncement
		}
		record = appendText(appendText(record, label), value)
	}
	binary.LittleEndian.PutUint16(record, uint16(len(record)))
	return record, nil
}

// Reads one message of the gateway. Whoever reads passes over what a later version has appended.
func decodeStanding(message []byte) (standing Standing, isStanding bool) {
	if len(message) < headerBytes+3 || int(binary.LittleEndian.Uint16(message)) != len(message) ||
		message[2] != kindStanding || message[3] != 0 || binary.LittleEndian.Uint16(message[4:]) == 0 {
		return 0, false
	}
	if standing = Standing(message[6]); standing > StandingInvalid {
		standing = StandingRefused
	}
	return standing, true
}

func appendText(record []byte, text string) []byte {
	return append(append(record, byte(len(text))), text...)
}

// Letters, digits, '.', '_' and '-', beginning with a letter or a digit.
func isLabelName(text string) bool {
	for at := 0; at < len(text); at++ {
		c := text[at]
		isFirst := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isFirst && (at == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= labelNameMax
}

func isLabelValue(text string) bool {
	for _, r := range text {
		if unicode.IsControl(r) {
			return false
		}
	}
	return len(text) <= labelValueMax && utf8.ValidString(text)
}
