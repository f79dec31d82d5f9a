#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#include "ringgate_node.h"

#include <godot_cpp/classes/engine.hpp>
#include <godot_cpp/core/class_db.hpp>
#include <godot_cpp/godot.hpp>

using namespace godot;

RinggateBackend::~RinggateBackend() { rg_free(backend); }

bool RinggateBackend::start(const String &run_dir, const String &name) {
    const CharString run_dir_text = run_dir.utf8(), name_text = name.utf8();
    rg_options options = {};
    options.run_dir = run_dir_text.get_data();
    options.name = name_text.get_data();
    options.may_start_alone = 1;
    options.batch_delay_ns = -1; // The frame is the delay.
    rg_free(backend);
    backend = rg_connect_with(&options);
    return backend != nullptr;
}

int RinggateBackend::send(int64_t session, const PackedByteArray &payload) {
    return rg_send(backend, static_cast<uint64_t>(session), payload.ptr(), static_cast<size_t>(payload.size()));
}

int RinggateBackend::multicast(const PackedInt64Array &sessions, const PackedByteArray &payload) {
    const auto *ids = reinterpret_cast<const uint64_t *>(sessions.ptr());
    return static_cast<int>(rg_multicast(backend, ids, static_cast<size_t>(sessions.size()), payload.ptr(),
                                         static_cast<size_t>(payload.size())));
}

int RinggateBackend::kick(int64_t session) {
    return rg_close_session(backend, static_cast<uint64_t>(session), RG_CLOSE_KICKED);
}

static PackedByteArray copy(const uint8_t *bytes, size_t len) {
    PackedByteArray array;
    array.resize(static_cast<int64_t>(len));
    if (len > 0)
        memcpy(array.ptrw(), bytes, len);
    return array;
}

void RinggateBackend::_process(double) {
    if (backend == nullptr || Engine::get_singleton()->is_editor_hint())
        return;
    rg_event event;
    while (rg_next(backend, &event) > 0) {
        const auto session = static_cast<int64_t>(event.session);
        switch (event.kind) {
        case RG_OPENED:
            emit_signal("opened", session, static_cast<int64_t>(event.client_id), event.slot,
                        copy(event.user_data, RG_USER_DATA_BYTES));
            break;
        case RG_PAYLOAD:
            emit_signal("payload", session, copy(event.bytes, event.bytes_len));
            break;
        case RG_CLOSED:
            emit_signal("closed", session, String(rg_close_reason_text(event.reason)));
            break;
        case RG_MOVED:
            emit_signal("closed", session, String(rg_close_reason_text(RG_CLOSE_MOVED)));
            break;
        case RG_LINK_LOST:
            emit_signal("link_lost", event.worker, String(rg_link_loss_text(event.reason)));
            break;
        default:
            break;
        }
    }
    rg_flush(backend);
}

void RinggateBackend::_bind_methods() {
    ClassDB::bind_method(D_METHOD("start", "run_dir", "name"), &RinggateBackend::start);
    ClassDB::bind_method(D_METHOD("send", "session", "payload"), &RinggateBackend::send);
    ClassDB::bind_method(D_METHOD("multicast", "sessions", "payload"), &RinggateBackend::multicast);
    ClassDB::bind_method(D_METHOD("kick", "session"), &RinggateBackend::kick);
    ADD_SIGNAL(MethodInfo("opened", PropertyInfo(Variant::INT, "session"), PropertyInfo(Variant::INT, "client_id"),
                          PropertyInfo(Variant::INT, "slot"), PropertyInfo(Variant::PACKED_BYTE_ARRAY, "user_data")));
    ADD_SIGNAL(MethodInfo("payload", PropertyInfo(Variant::INT, "session"),
                          PropertyInfo(Variant::PACKED_BYTE_ARRAY, "bytes")));
    ADD_SIGNAL(MethodInfo("closed", PropertyInfo(Variant::INT, "session"), PropertyInfo(Variant::STRING, "reason")));
    ADD_SIGNAL(MethodInfo("link_lost", PropertyInfo(Variant::INT, "worker"), PropertyInfo(Variant::STRING, "reason")));
}

static void initialize(ModuleInitializationLevel level) {
    if (level == MODULE_INITIALIZATION_LEVEL_SCENE)
        ClassDB::register_class<RinggateBackend>();
}

static void terminate(ModuleInitializationLevel) {}

extern "C" GDExtensionBool GDE_EXPORT ringgate_init(GDExtensionInterfaceGetProcAddress get_proc_address,
                                                    GDExtensionClassLibraryPtr library,
                                                    GDExtensionInitialization *initialization) {
    GDExtensionBinding::InitObject init(get_proc_address, library, initialization);
    init.register_initializer(initialize);
    init.register_terminator(terminate);
    init.set_minimum_library_initialization_level(MODULE_INITIALIZATION_LEVEL_SCENE);
    return init.init();
}
