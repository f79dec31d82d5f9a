// A component that holds a backend of the gateway and tells the game what happens, once a frame. For dedicated Linux servers;
// needs Ringgate.Backend.cs beside it and libringgate_backend.so.1 in Assets/Plugins/x86_64.

using System;
using Ringgate;
using UnityEngine;

public sealed class RinggateServer : MonoBehaviour {
    public string runDir = "/run/ringgate";
    public string backendName = "arena-1";

    public event Action<Ringgate.Event> Opened, Payload, Closed, LinkLost;

    readonly Ringgate.Event happened = new Ringgate.Event();
    Backend backend;

    void OnEnable() { backend = new Backend(runDir, backendName, mayStartAlone: true); }

    void OnDisable() {
        backend.Dispose();
        backend = null;
    }

    void Update() {
        while (backend.Next(happened)) {
            switch (happened.Kind) {
            case Kind.Opened:
                Opened?.Invoke(happened);
                break;
            case Kind.Payload:
                Payload?.Invoke(happened);
                break;
            case Kind.Closed:
            case Kind.Moved:
                Closed?.Invoke(happened);
                break;
            case Kind.LinkLost:
                Debug.LogWarning("worker " + happened.Worker + ": " + happened.Text);
                LinkLost?.Invoke(happened);
                break;
            }
        }
    }

    // After all Updates, so that what they have answered leaves together.
    void LateUpdate() { backend.Flush(); }

    public SendResult Send(ulong session, ArraySegment<byte> payload) { return backend.Send(session, payload); }

    public SendResult Kick(ulong session) { return backend.CloseSession(session, CloseReason.Kicked); }
}
