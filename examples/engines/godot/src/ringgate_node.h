// A node that holds a backend of the gateway and tells the scene what happens, once a frame.
#pragma once

#include <godot_cpp/classes/node.hpp>
#include <godot_cpp/variant/packed_byte_array.hpp>
#include <godot_cpp/variant/packed_int64_array.hpp>

struct rg_backend;

class RinggateBackend : public godot::Node {
    GDCLASS(RinggateBackend, godot::Node)

public:
    ~RinggateBackend() override;

    // Whether the backend could be started; a gateway that is not there yet is waited for.
    bool start(const godot::String &run_dir, const godot::String &name);
    // 0, or why the payload was not taken (enum rg_send_result).
    int send(int64_t session, const godot::PackedByteArray &payload);
    // For how many players it was taken.
    int multicast(const godot::PackedInt64Array &sessions, const godot::PackedByteArray &payload);
    int kick(int64_t session);

    void _process(double delta) override;

protected:
    static void _bind_methods();

private:
    rg_backend *backend = nullptr;
};
