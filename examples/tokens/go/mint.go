// Mints netcode 1.02 connect tokens, as a token service in Go does. Needs golang.org/x/crypto.
//
//	go run . KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]
//
// KEY_FILE is what `ringgate keygen` has made, SERVER an address that players dial, OUT gets 2048
// bytes.
package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
)

const version = "NETCODE 1.02\x00"

// Rules are what a token says besides who plays where.
type Rules struct {
	Expire, Timeout time.Duration
	UserData        []byte
}

// Address appends a server's address as tokens have it: all numbers little-endian, the words of
// IPv6 too.
func address(to []byte, server netip.AddrPort) []byte {
	ip := server.Addr()
	if ip.Is4() {
		to = append(append(to, 1), ip.AsSlice()...)
	} else {
		to = append(to, 2)
		for words := ip.AsSlice(); len(words) > 0; words = words[2:] {
			to = append(to, words[1], words[0])
		}
	}
	return binary.LittleEndian.AppendUint16(to, server.Port())
}

// Mint makes a token for one client. It goes to the client, and nowhere else.
func Mint(key []byte, protocol, client uint64, servers []netip.AddrPort, rules Rules) ([]byte, error) {
	if len(servers) < 1 || len(servers) > 32 || len(rules.UserData) > 256 {
		return nil, errors.New("a token has 1 to 32 servers and 256 bytes of user data at most")
	}
	cipher, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	// The keys from client to server and from server to client, never used twice; and the nonce.
	var fresh [64 + chacha20poly1305.NonceSizeX]byte
	if _, err := rand.Read(fresh[:]); err != nil {
		return nil, err
	}
	keys, nonce := fresh[:64], fresh[64:]
	le := binary.LittleEndian
	created := uint64(time.Now().Unix())
	expires := created + uint64(rules.Expire/time.Second)
	timeout := le.AppendUint32(nil, uint32(int32(rules.Timeout/time.Second)))
	addresses := le.AppendUint32(nil, uint32(len(servers)))
	for _, server := range servers {
		addresses = address(addresses, server)
	}

	private := append(le.AppendUint64(nil, client), timeout...)
	private = append(append(private, addresses...), keys...)
	private = append(private, rules.UserData...)
	private = append(private, make([]byte, 1008-len(private))...)
	bound := le.AppendUint64(le.AppendUint64([]byte(version), protocol), expires)

	token := le.AppendUint64([]byte(version), protocol)
	token = le.AppendUint64(le.AppendUint64(token, created), expires)
	token = cipher.Seal(append(token, nonce...), nonce, private, bound)
	token = append(append(append(token, timeout...), addresses...), keys...)
	return append(token, make([]byte, 2048-len(token))...), nil
}

func run(args []string) error {
	if len(args) < 5 {
		return errors.New("mint KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	protocol, err := strconv.ParseUint(args[1], 0, 64)
	if err != nil {
		return err
	}
	client, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	var servers []netip.AddrPort
	for _, text := range strings.Split(args[3], ",") {
		server, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	rules := Rules{Expire: 30 * time.Second, Timeout: 15 * time.Second}
	rules.UserData = []byte(strings.Join(args[5:], ""))
	token, err := Mint(key, protocol, client, servers, rules)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(args[4], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(token); err != nil {
		return err
	}
	return file.Close()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mint:", err)
		os.Exit(1)
	}
}
