using UnrealBuildTool;

public class RinggateBackend : ModuleRules {
	public RinggateBackend(ReadOnlyTargetRules Target) : base(Target) {
		PCHUsage = PCHUsageMode.NoPCHs; // ringgate_backend.h has to be the first include of its file
		PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "Engine" });
	}
}
