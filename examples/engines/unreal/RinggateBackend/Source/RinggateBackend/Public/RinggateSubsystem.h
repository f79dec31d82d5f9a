// Holds a backend of the gateway for as long as the game instance lives, and tells the game what
// happens, once a frame. For servers that speak a protocol of their own; a server that speaks
// Unreal's stays as it is, behind a listener with protocol = "unreal".
#pragma once

#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"
#include "Tickable.h"

#include "RinggateSubsystem.generated.h"

struct rg_backend;

DECLARE_MULTICAST_DELEGATE_FourParams(FRinggateOpened, uint64 /*Session*/, uint64 /*ClientId*/, uint32 /*Slot*/,
                                      TArrayView<const uint8> /*UserData*/);
DECLARE_MULTICAST_DELEGATE_TwoParams(FRinggatePayload, uint64 /*Session*/, TArrayView<const uint8> /*Bytes*/);
DECLARE_MULTICAST_DELEGATE_TwoParams(FRinggateClosed, uint64 /*Session*/, const FString & /*Reason*/);
DECLARE_MULTICAST_DELEGATE_TwoParams(FRinggateLinkLost, uint32 /*Worker*/, const FString & /*Reason*/);

UCLASS()
class RINGGATEBACKEND_API URinggateSubsystem : public UGameInstanceSubsystem, public FTickableGameObject {
	GENERATED_BODY()

public:
	FRinggateOpened OnOpened;
	FRinggatePayload OnPayload;
	FRinggateClosed OnClosed;
	FRinggateLinkLost OnLinkLost;

	// Whether the backend could be started; a gateway that is not there yet is waited for.
	bool Start(const FString &RunDir, const FString &Name);
	bool Send(uint64 Session, TArrayView<const uint8> Payload);
	int32 Multicast(TArrayView<const uint64> Sessions, TArrayView<const uint8> Payload);
	bool Kick(uint64 Session);

	virtual void Deinitialize() override;
	virtual void Tick(float DeltaTime) override;
	virtual TStatId GetStatId() const override;
	virtual bool IsTickable() const override { return Backend != nullptr; }

private:
	rg_backend *Backend = nullptr;
};
