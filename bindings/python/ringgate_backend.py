"""The game server's end of ringgate's bundle link, over its C library.

    from ringgate_backend import Backend, Kind

    backend = Backend("/run/ringgate", "arena-1")
    while True:
        backend.wait()
        for event in backend.events():
            if event.kind == Kind.PAYLOAD:
                backend.send(event.session, event.bytes)
        backend.flush()

A turn is: take every event, answer, flush once. Only wait() blocks. One thread at a time may use a
backend. A child of os.fork() that does not execute another program calls close() first, because it
would keep the links up when its parent has ended; children of multiprocessing do. The library is
looked for where RINGGATE_BACKEND_LIBRARY says, and else where the system keeps libraries.
"""

import ctypes
import enum
import errno
import ipaddress
import multiprocessing.util
import os

__all__ = [
    "Backend", "BackendError", "Channel", "CloseReason", "Event", "Kind", "LinkLoss", "MoveRefusal", "NO_SLOT", "SendError", "Standing", "State",
    "Stats", "worker_of",
]

NO_SLOT = 0xFFFFFFFF
PAYLOAD_BYTES_MAX = 1200
LONG_PAYLOAD_BYTES_MAX = 1472
MESSAGE_BYTES_MAX = 65536
SHORT_MESSAGE_BYTES_MAX = 1159
FAREWELL_BYTES_MAX = 200
MOVE_BYTES_MAX = 1024
LIBRARY_MAJOR = 1
LIBRARY_MINOR = 3
LONGEST = 2**63 // 10**9


class Kind(enum.IntEnum):
    """What happened, and which fields of an Event are set besides `kind` and `worker`."""

    LINK_UP = 1  # workers, incarnation, version
    OPENED = 2  # session, client_id, address, port, slot, slots_max, user_data, listener, delivers, is_moved, ticket
    PAYLOAD = 3  # session, bytes
    CLOSED = 4  # session, reason
    PONG = 5  # round_trip (seconds)
    DRAINING = 6  # left (seconds): no new players come, and the gateway will shut down
    LINK_LOST = 7  # reason, text, payloads_unsent: forget all sessions of the worker
    OPENED_PLAIN = 8  # session, address, port, slot, slots_max, listener
    UNDRAINED = 9  # the gateway takes players again
    MESSAGE = 10  # session, channel, bytes: of a listener with delivery = "gateway"
    REPORT = 11  # session, token, is_delivered
    ROOM = 12  # session, is_full, waiting_bytes
    QUALITY = 13  # session, round_trip, variation (seconds), loss (0 to 1), waiting_bytes
    LINGERED = 14  # session, waiting_bytes, is_told: what became of one that was closed with close_session_after
    OFFERED = 15  # session, offer, ticket, left (seconds), client_id, address, port, slot, slots_max, user_data, listener,
    #               delivers, source, bytes: a player of another process may come, as answer() says; not here before its OPENED
    OFFER_OVER = 16  # session, offer, reason, text: it cannot come any more
    MOVED = 17  # session, ticket: it is at another process. The last about the session, but for a REPORT of what was sent before
    MOVE_REFUSED = 18  # session, ticket, reason, text: it plays on here


class CloseReason(enum.IntEnum):
    """Why a session ended. A game may give those from FINISHED on."""

    OTHER = 0
    PLAYER_LEFT = 1
    TIMED_OUT = 2
    SEQUENCE_GAP = 3
    SEQUENCE_EXHAUSTED = 4
    SHUTDOWN = 5
    OPERATOR = 6
    UNCONFIGURED = 7
    DELIVERY = 8
    OVERFLOW = 9
    NEWER_LOGIN = 10
    MOVED = 11  # only a program that knows nothing of Kind.MOVED gets it
    FINISHED = 128
    KICKED = 129
    REFUSED = 130
    GAME_SHUTDOWN = 131

    @classmethod
    def _missing_(cls, value):
        return cls.OTHER


class MoveRefusal(enum.IntEnum):
    """Why a player was not moved."""

    OTHER = 0
    NO_SUCH_BACKEND = 1
    ITSELF = 2
    FULL = 3
    NOT_LINKED = 4  # no process is connected there
    DENIED = 5  # by the process there
    TIME = 6  # it has not answered in time
    VERSION = 7
    FRONT = 8  # players of this protocol, or of servers on a udp link
    NOT_ALLOWED = 9  # by the listener's config
    BUSY = 10  # the player is being moved already
    OFFERS = 11  # 64 players are offered there already
    CLOSED = 12  # nobody new is taken there, or the gateway is about to stop
    SESSION_OVER = 13
    PLAYER_FULL = 14  # too much waits for the player for one message more
    SOURCE_GONE = 15  # the process that the player plays with has gone

    @classmethod
    def _missing_(cls, value):
        return cls.OTHER


class Channel(enum.IntEnum):
    """The kinds of a player's channels, of each of which there are 256."""

    RELIABLE = 1
    SEQUENCED = 2
    UNRELIABLE = 3


class LinkLoss(enum.IntEnum):
    """Why a link is down. Below 256: the gateway's goodbye."""

    OTHER = 0
    SHUTDOWN = 1
    VERSION = 2
    UNAUTHORISED = 3
    NAME_UNKNOWN = 4
    NAME_TAKEN = 5
    HELLO_EXPECTED = 6
    GATEWAY_FOUND_RECORD_INVALID = 7
    HUNG_UP = 256
    RECORD_INVALID = 257
    WELCOME_EXPECTED = 258
    VERSION_UNSUPPORTED = 259
    FAILED = 260

    @classmethod
    def _missing_(cls, value):
        return cls.OTHER


class State(enum.IntEnum):
    """What a game process is ready for."""

    STARTING = 0  # not yet for players
    READY = 1  # for anybody
    ALLOCATED = 2  # for those whom a matchmaker has sent
    DRAINING = 3  # for those who are there


class Standing(enum.IntEnum):
    """What has become of an announcement."""

    WAITING = 0  # the gateway is not there, or cannot reach the fleet now
    REGISTERED = 1
    NAME_TAKEN = 2  # by another process, at this gateway or at another one
    NAME_IN_CONFIG = 3  # a [[backend]] in the gateway's config has it
    TOO_MANY = 4  # the gateway takes no more of the fleet
    UNAUTHORISED = 5  # this user may not
    INVALID = 6  # the gateway does not understand it
    REFUSED = 255  # also what a newer gateway says

    @classmethod
    def _missing_(cls, value):
        return cls.REFUSED


class BackendError(OSError):
    """The backend cannot start or cannot wait."""


class SendError(Exception):
    """Something was not taken. `result` is the number, the text says why."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result

    LINK_DOWN, LINK_FULL, PAYLOAD_LENGTH, NOT_A_CHOICE = -1, -2, -3, -4
    MESSAGE_LENGTH, NO_MESSAGES, NO_CHANNEL, FAREWELL_LENGTH, NO_DELIVERY = -5, -6, -7, -8, -9
    NO_MOVES, NAME, MOVE_LENGTH = -10, -11, -12


class _Event(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("worker", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("reason", ctypes.c_uint),
        ("error", ctypes.c_uint),
        ("incarnation", ctypes.c_uint64),
        ("session", ctypes.c_uint64),
        ("client_id", ctypes.c_uint64),
        ("ip", ctypes.POINTER(ctypes.c_uint8)),
        ("scope", ctypes.c_uint32),
        ("port", ctypes.c_uint16),
        ("slot", ctypes.c_uint32),
        ("slots_max", ctypes.c_uint32),
        ("user_data", ctypes.POINTER(ctypes.c_uint8)),
        ("listener", ctypes.c_char * 33),
        ("bytes", ctypes.POINTER(ctypes.c_uint8)),
        ("bytes_len", ctypes.c_size_t),
        ("round_trip_ns", ctypes.c_uint64),
        ("left_ms", ctypes.c_uint32),
        ("payloads_unsent", ctypes.c_uint64),
        ("version", ctypes.c_uint),
        ("channel_kind", ctypes.c_uint),
        ("channel", ctypes.c_uint),
        ("token", ctypes.c_uint64),
        ("is_delivered", ctypes.c_int),
        ("is_full", ctypes.c_int),
        ("waiting_bytes", ctypes.c_uint32),
        ("variation_ns", ctypes.c_uint64),
        ("loss_per_mille", ctypes.c_uint),
        ("user", ctypes.c_void_p),
        ("delivers", ctypes.c_int),
        ("is_moved", ctypes.c_int),
        ("ticket", ctypes.c_uint64),
        ("offer", ctypes.c_uint64),
        ("source", ctypes.c_char * 33),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("run_dir", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("spin_ns", ctypes.c_int64),
        ("queue_bundles", ctypes.c_uint),
        ("may_start_alone", ctypes.c_int),
        ("batch_delay_ns", ctypes.c_int64),
    ]


class _Move(ctypes.Structure):
    _fields_ = [
        ("backend", ctypes.c_char_p),
        ("ticket", ctypes.c_uint64),
        ("time_ms", ctypes.c_uint32),
        ("confirms", ctypes.c_int),
        ("data", ctypes.c_char_p),
        ("data_len", ctypes.c_size_t),
        ("message", ctypes.c_char_p),
        ("message_len", ctypes.c_size_t),
        ("channel_kind", ctypes.c_uint),
        ("channel", ctypes.c_uint),
    ]


class _Label(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _Announcement(ctypes.Structure):
    _fields_ = [
        ("group", ctypes.c_char_p),
        ("slots", ctypes.c_uint32),
        ("state", ctypes.c_int),
        ("counts_players", ctypes.c_int),
        ("players", ctypes.c_uint32),
        ("labels", ctypes.POINTER(_Label)),
        ("labels_len", ctypes.c_size_t),
    ]


class Stats(ctypes.Structure):
    """What became of payloads, one for each player that a multicast names. All only grow."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "payloads_taken", "payloads_sent", "payloads_lost", "payloads_link_down", "payloads_link_full", "bundles_sent",
        )
    ]


class Event:
    """What happened. It has the fields that its kind names, and keeps them."""

    def __init__(self, kind, worker, **fields):
        self.kind = kind
        self.worker = worker
        self.__dict__.update(fields)

    def __repr__(self):
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items() if name != "kind")
        return f"Event({self.kind.name}, {fields})"


def worker_of(session):
    """The worker that owns a session."""
    return session >> 56


def _text(text):
    """For the library, whose texts end with a NUL."""
    encoded = text.encode()
    if b"\0" in encoded:
        raise ValueError(f"{text!r} has a NUL in it")
    return encoded


def _nanoseconds(seconds):
    """For the library, which has 63 bits for them. NaN is a ValueError."""
    if seconds != seconds:
        raise ValueError("NaN seconds")
    return int(max(-LONGEST, min(seconds, LONGEST)) * 1e9)


def _load(path):
    path = path or os.environ.get("RINGGATE_BACKEND_LIBRARY") or f"libringgate_backend.so.{LIBRARY_MAJOR}"
    library = ctypes.CDLL(path, use_errno=True)
    event, options, stats = map(ctypes.POINTER, (_Event, _Options, Stats))
    handle, session, size, text = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p
    number, bytes_in = ctypes.c_uint, ctypes.c_char_p
    faces = {
        "rg_connect_sized": (handle, [options, size]),
        "rg_free": (None, [handle]),
        "rg_wait": (ctypes.c_int, [handle, ctypes.c_int64]),
        "rg_fd": (ctypes.c_int, [handle]),
        "rg_next_sized": (ctypes.c_int, [handle, event, size]),
        "rg_send": (ctypes.c_int, [handle, session, bytes_in, size]),
        "rg_multicast": (size, [handle, ctypes.POINTER(ctypes.c_uint64), size, bytes_in, size]),
        "rg_send_message": (ctypes.c_int, [handle, session, number, number, bytes_in, size, ctypes.c_uint64]),
        "rg_ask_quality": (ctypes.c_int, [handle, session]),
        "rg_close_session": (ctypes.c_int, [handle, session, number]),
        "rg_close_session_after": (ctypes.c_int, [handle, session, number, ctypes.c_uint32, bytes_in, size]),
        "rg_move_session_sized": (ctypes.c_int, [handle, session, ctypes.POINTER(_Move), size]),
        "rg_answer": (ctypes.c_int, [handle, session, ctypes.c_uint64, ctypes.c_int]),
        "rg_move_refusal_text": (text, [number]),
        "rg_ping": (number, [handle]),
        "rg_flush": (None, [handle]),
        "rg_flush_for": (size, [handle, ctypes.c_int64]),
        "rg_is_up": (ctypes.c_int, [handle]),
        "rg_stats_sized": (None, [handle, stats, size]),
        "rg_announce_sized": (ctypes.c_int, [handle, ctypes.POINTER(_Announcement), size]),
        "rg_standing": (ctypes.c_int, [handle]),
        "rg_standing_text": (text, [number]),
        "rg_link_loss_text": (text, [number]),
        "rg_close_reason_text": (text, [number]),
        "rg_record_error_text": (text, [number]),
        "rg_send_result_text": (text, [ctypes.c_int]),
    }
    library.rg_library_version.restype = ctypes.c_uint32
    version = library.rg_library_version()
    if version >> 16 != LIBRARY_MAJOR or version & 0xFFFF < LIBRARY_MINOR:
        raise ImportError(f"{path} is not version {LIBRARY_MAJOR}.{LIBRARY_MINOR} of the library, or a later one of {LIBRARY_MAJOR}")
    for name, (result, arguments) in faces.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Backend:
    """A game process's connection to every worker of a gateway."""

    def __init__(self, run_dir="/run/ringgate", name="arena-1", *, may_start_alone=False, queue_bundles=0,
                 spin=0.0, batch_delay=None, library=None):
        self._library = _load(library)
        self._handle = None
        options = _Options(
            os.fsencode(run_dir), _text(name), _nanoseconds(spin), queue_bundles, may_start_alone,
            0 if batch_delay is None else _nanoseconds(batch_delay) or -1,
        )
        self._handle = self._library.rg_connect_sized(ctypes.byref(options), ctypes.sizeof(options))
        if not self._handle:
            number = ctypes.get_errno()
            raise BackendError(number, os.strerror(number), os.path.join(run_dir, "worker-0.sock"))
        self._event = _Event()
        multiprocessing.util.register_after_fork(self, Backend.close)

    def close(self):
        """Hangs up on every worker. In a child that was forked the parent's links stay as they are."""
        if self._handle:
            self._library.rg_free(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def fileno(self):
        """Readable whenever events() has something to do: for select, asyncio's add_reader and the like."""
        return self._library.rg_fd(self._handle)

    def wait(self, timeout=None):
        """Flushes, then waits for something to do, or for so many seconds: not at all below 0, which is
        a deadline that has passed. Without `timeout` as long as it takes. Whether there is something."""
        found = self._library.rg_wait(self._handle, -1 if timeout is None else max(0, _nanoseconds(timeout)))
        if found < 0:
            number = ctypes.get_errno()
            raise BackendError(number, os.strerror(number))
        return found > 0

    def events(self):
        """The events of this turn."""
        while True:
            found = self._library.rg_next_sized(self._handle, ctypes.byref(self._event), ctypes.sizeof(_Event))
            if found == 0:
                return
            if found < 0:
                number = ctypes.get_errno()
                raise BackendError(number, os.strerror(number))
            event = self._copy(self._event)
            if event is not None:
                yield event

    def _copy(self, event):
        try:
            kind = Kind(event.kind)
        except ValueError:
            return None  # Of a later library.
        return Event(kind, event.worker, **self._FIELDS[kind](self, event))

    def _player(self, event):
        ip = ipaddress.IPv6Address(bytes(event.ip[:16]))
        return {
            "session": event.session, "address": ip.ipv4_mapped or ip, "scope": event.scope, "port": event.port,
            "slot": event.slot, "slots_max": event.slots_max, "listener": event.listener.decode("ascii"),
        }

    def _client(self, event):
        user_data = bytes(event.user_data[:256])
        return {"client_id": event.client_id, "user_data": user_data, "delivers": bool(event.delivers), **self._player(event)}

    def _opened(self, event):
        return {"is_moved": bool(event.is_moved), "ticket": event.ticket, **self._client(event)}

    def _offered(self, event):
        source = event.source.decode("ascii")
        left = event.left_ms / 1e3
        return {"offer": event.offer, "ticket": event.ticket, "left": left, "source": source, **self._client(event), **self._bytes(event)}

    def _refused(self, event):
        text = self._library.rg_move_refusal_text(event.reason).decode()
        return {"session": event.session, "reason": MoveRefusal(event.reason), "text": text}

    def _bytes(self, event):
        return {"session": event.session, "bytes": ctypes.string_at(event.bytes, event.bytes_len)}

    def _message(self, event):
        return {"channel": (Channel(event.channel_kind), event.channel), **self._bytes(event)}

    def _lost(self, event):
        text = self._library.rg_link_loss_text(event.reason).decode()
        if event.reason in (LinkLoss.GATEWAY_FOUND_RECORD_INVALID, LinkLoss.RECORD_INVALID):
            text += f" ({self._library.rg_record_error_text(event.error).decode()})"
        return {"reason": LinkLoss(event.reason), "text": text, "payloads_unsent": event.payloads_unsent}

    _FIELDS = {
        Kind.LINK_UP: lambda self, e: {"workers": e.workers, "incarnation": e.incarnation, "version": e.version},
        Kind.OPENED: _opened,
        Kind.OPENED_PLAIN: _player,
        Kind.PAYLOAD: _bytes,
        Kind.CLOSED: lambda self, e: {"session": e.session, "reason": CloseReason(e.reason)},
        Kind.PONG: lambda self, e: {"round_trip": e.round_trip_ns / 1e9},
        Kind.DRAINING: lambda self, e: {"left": e.left_ms / 1e3},
        Kind.UNDRAINED: lambda self, e: {},
        Kind.LINK_LOST: _lost,
        Kind.MESSAGE: _message,
        Kind.REPORT: lambda self, e: {"session": e.session, "token": e.token, "is_delivered": bool(e.is_delivered)},
        Kind.ROOM: lambda self, e: {"session": e.session, "is_full": bool(e.is_full), "waiting_bytes": e.waiting_bytes},
        Kind.QUALITY: lambda self, e: {
            "session": e.session, "round_trip": e.round_trip_ns / 1e9, "variation": e.variation_ns / 1e9,
            "loss": e.loss_per_mille / 1e3, "waiting_bytes": e.waiting_bytes,
        },
        Kind.LINGERED: lambda self, e: {
            "session": e.session, "waiting_bytes": e.waiting_bytes, "is_told": bool(e.is_delivered),
        },
        Kind.OFFERED: _offered,
        Kind.OFFER_OVER: lambda self, e: {"offer": e.offer, **self._refused(e)},
        Kind.MOVED: lambda self, e: {"session": e.session, "ticket": e.ticket},
        Kind.MOVE_REFUSED: lambda self, e: {"ticket": e.ticket, **self._refused(e)},
    }

    def _check(self, result):
        if result != 0:
            raise SendError(result, self._library.rg_send_result_text(result).decode())

    def send(self, session, payload):
        """Takes 1 to 1200 bytes for a player, up to 1472 for one of a plain listener, up to 1159 for one who gets messages
        (`delivers` of its OPENED)."""
        self._check(self._library.rg_send(self._handle, session, payload, len(payload)))

    def multicast(self, sessions, payload):
        """Takes the same 1 to 1200 bytes for several players. Returns for how many: for none where one of them gets messages
        and there are more than 1159."""
        array = (ctypes.c_uint64 * len(sessions))(*sessions)
        return self._library.rg_multicast(self._handle, array, len(sessions), payload, len(payload))

    def send_message(self, session, channel, message, token=0):
        """Sends a whole message to a player of a listener with delivery = "gateway". `channel` is (Channel, 0 to 255).
        With a token other than 0, a REPORT says what became of it."""
        kind, number = channel
        self._check(self._library.rg_send_message(self._handle, session, kind, number, message, len(message), token))

    def ask_quality(self, session):
        """Asks how good the way to a player is, which a QUALITY answers."""
        self._check(self._library.rg_ask_quality(self._handle, session))

    def close_session(self, session, reason=CloseReason.FINISHED):
        """Ends a session; CLOSED with the same reason answers."""
        self._check(self._library.rg_close_session(self._handle, session, reason))

    def close_session_after(self, session, reason=CloseReason.FINISHED, linger=30.0, text=b""):
        """Ends a session of a player who gets messages when everything that was sent on reliable channels has arrived, or after
        so many seconds, of which more than 30 count as that. The player's library has the reason and the text (bytes, or a str as
        UTF-8, at most 200 bytes), if it is of this release or later. LINGERED and CLOSED answer. Other players, and those of an
        earlier gateway, are closed at once."""
        text = text.encode() if isinstance(text, str) else bytes(text)
        linger_ms = min(max(0, _nanoseconds(linger)) // 10**6, 0xFFFFFFFF)
        self._check(self._library.rg_close_session_after(self._handle, session, reason, linger_ms, text, len(text)))

    def move_session(self, session, backend, ticket=0, data=b"", *, time=None, confirms=False, channel=None, message=None):
        """Moves a player to another game process of the gateway, if that says yes within `time` seconds (2 of them, 30 at most) and
        the listener's config allows it. Both processes know the move by its ticket, any number; `data` is for the other one. With
        `confirms` that one is told that it has the player when this one has heard that it has lost it. `message` is sent to a
        player who gets messages in between, on `channel` (Channel, 0 to 255). MOVED or MOVE_REFUSED answers, unless the session is
        closed before. Until then the player plays on here."""
        kind, number = (0, 0) if channel is None else channel
        # The library's default is 0, so no time at all is the shortest that there is.
        time_ms = 0 if time is None else min(max(1, _nanoseconds(time) // 10**6), 0xFFFFFFFF)
        move = _Move(_text(backend), ticket, time_ms, confirms, data, len(data), message, len(message or b""), kind, number)
        self._check(self._library.rg_move_session_sized(self._handle, session, ctypes.byref(move), ctypes.sizeof(move)))

    def answer(self, session, offer, is_welcome):
        """Says whether a player may come who was OFFERED."""
        self._check(self._library.rg_answer(self._handle, session, offer, is_welcome))

    def announce(self, group, slots, state=State.READY, *, players=None, labels=None):
        """Registers this process with the fleet of its gateway, which leads players to it from then on, and says anew what it is
        whenever that has changed. It stays registered as long as it runs, and a gateway that restarts is told again. Costs a message to
        the gateway, so a few times a second at the most. Without `players` the gateway counts them; `labels` are names and values.
        A gateway knows nobody of this name before, so connect with `may_start_alone`; its refusals until then are of no concern."""
        labels = [_Label(_text(name), _text(value)) for name, value in (labels or {}).items()]
        for number in (slots, players or 0):
            if not 0 <= number <= 0xFFFFFFFF:
                raise ValueError(f"{number} is no number of players")
        what = _Announcement(
            _text(group), slots, state, players is not None, players or 0, (_Label * len(labels))(*labels), len(labels),
        )
        if self._library.rg_announce_sized(self._handle, ctypes.byref(what), ctypes.sizeof(what)) != 0:
            number = ctypes.get_errno()
            if number == errno.EINVAL:
                raise ValueError("an announcement with a name, a group, labels, slots or players that cannot be")
            raise BackendError(number, os.strerror(number))

    @property
    def standing(self):
        """How the registration stands, as the gateway has said last."""
        return Standing(self._library.rg_standing(self._handle))

    @property
    def standing_text(self):
        """The same in words."""
        return self._library.rg_standing_text(self.standing).decode()

    def ping(self):
        """Asks every worker for a PONG. Returns how many were asked."""
        return self._library.rg_ping(self._handle)

    def flush(self):
        """Sends what was taken: one datagram for each link, more only where one is too small."""
        self._library.rg_flush(self._handle)

    def flush_for(self, wait):
        """The same, and waits for at most so many seconds until all of it has left. Returns how many datagrams
        have not: a process that ends before there are none takes them along, closes included."""
        return self._library.rg_flush_for(self._handle, max(0, _nanoseconds(wait)))

    @property
    def is_up(self):
        """Whether the links to all workers are up."""
        return bool(self._library.rg_is_up(self._handle))

    @property
    def stats(self):
        """What became of all payloads so far."""
        stats = Stats()
        self._library.rg_stats_sized(self._handle, ctypes.byref(stats), ctypes.sizeof(stats))
        return stats
