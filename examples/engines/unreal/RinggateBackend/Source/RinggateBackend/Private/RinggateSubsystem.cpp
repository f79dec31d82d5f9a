// Copy ringgate_backend.h beside this file.
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#include "RinggateSubsystem.h"

#include "Modules/ModuleManager.h"

IMPLEMENT_MODULE(FDefaultModuleImpl, RinggateBackend)

bool URinggateSubsystem::Start(const FString &RunDir, const FString &Name) {
	const FTCHARToUTF8 RunDirText(*RunDir), NameText(*Name);
	rg_options Options = {};
	Options.run_dir = RunDirText.Get();
	Options.name = NameText.Get();
	Options.may_start_alone = 1;
	Options.batch_delay_ns = -1; // The frame is the delay.
	rg_free(Backend);
	Backend = rg_connect_with(&Options);
	return Backend != nullptr;
}

void URinggateSubsystem::Deinitialize() {
	rg_free(Backend);
	Backend = nullptr;
	Super::Deinitialize();
}

bool URinggateSubsystem::Send(uint64 Session, TArrayView<const uint8> Payload) {
	return rg_send(Backend, Session, Payload.GetData(), Payload.Num()) == RG_SEND_OK;
}

int32 URinggateSubsystem::Multicast(TArrayView<const uint64> Sessions, TArrayView<const uint8> Payload) {
	// uint64 and uint64_t are as long as each other and two types.
	const uint64_t *Ids = reinterpret_cast<const uint64_t *>(Sessions.GetData());
	return static_cast<int32>(rg_multicast(Backend, Ids, Sessions.Num(), Payload.GetData(), Payload.Num()));
}

bool URinggateSubsystem::Kick(uint64 Session) {
	return rg_close_session(Backend, Session, RG_CLOSE_KICKED) == RG_SEND_OK;
}

void URinggateSubsystem::Tick(float) {
	rg_event Event;
	while (rg_next(Backend, &Event) > 0) {
		switch (Event.kind) {
		case RG_OPENED:
			OnOpened.Broadcast(Event.session, Event.client_id, Event.slot,
			                   MakeArrayView(Event.user_data, RG_USER_DATA_BYTES));
			break;
		case RG_PAYLOAD:
			OnPayload.Broadcast(Event.session, MakeArrayView(Event.bytes, static_cast<int32>(Event.bytes_len)));
			break;
		case RG_CLOSED:
			OnClosed.Broadcast(Event.session, FString(UTF8_TO_TCHAR(rg_close_reason_text(Event.reason))));
			break;
		case RG_MOVED:
			OnClosed.Broadcast(Event.session, FString(UTF8_TO_TCHAR(rg_close_reason_text(RG_CLOSE_MOVED))));
			break;
		case RG_LINK_LOST:
			OnLinkLost.Broadcast(Event.worker, FString(UTF8_TO_TCHAR(rg_link_loss_text(Event.reason))));
			break;
		default:
			break;
		}
	}
	rg_flush(Backend);
}

TStatId URinggateSubsystem::GetStatId() const {
	RETURN_QUICK_DECLARE_CYCLE_STAT(URinggateSubsystem, STATGROUP_Tickables);
}
