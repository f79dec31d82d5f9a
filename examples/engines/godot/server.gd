# An echo with players: attach it to a node whose child is a RinggateBackend.
extends Node

@onready var gateway: RinggateBackend = $RinggateBackend
var players := {}


func _ready() -> void:
	gateway.opened.connect(func(session, client_id, slot, _user_data): players[session] = [client_id, slot])
	gateway.closed.connect(func(session, _reason): players.erase(session))
	gateway.payload.connect(func(session, bytes): gateway.send(session, bytes))
	gateway.link_lost.connect(_on_link_lost)
	if not gateway.start("/run/ringgate", "arena-1"):
		push_error("the backend cannot start")


# A session's worker is in its upper 8 bits.
func _on_link_lost(worker: int, reason: String) -> void:
	push_warning("worker %d: %s" % [worker, reason])
	for session in players.keys():
		if (session >> 56) & 0xff == worker:
			players.erase(session)
