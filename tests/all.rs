//! The integration tests: one binary, one module per topic.

#[path = "all/agent.rs"]
mod agent;
#[path = "all/agent_certificates.rs"]
mod agent_certificates;
#[path = "all/agent_fixture.rs"]
mod agent_fixture;
#[path = "all/agent_killed.rs"]
mod agent_killed;
#[path = "all/agent_privileges.rs"]
mod agent_privileges;
#[path = "all/agent_records.rs"]
mod agent_records;
#[path = "all/agent_reload.rs"]
mod agent_reload;
#[path = "all/agent_reset.rs"]
mod agent_reset;
#[path = "all/agent_two_hosts.rs"]
mod agent_two_hosts;
#[path = "all/agent_unreal.rs"]
mod agent_unreal;
#[path = "all/agent_upgrade.rs"]
mod agent_upgrade;
#[path = "all/agent_upgrade_signals.rs"]
mod agent_upgrade_signals;
#[path = "all/awake.rs"]
mod awake;
#[path = "all/bindings.rs"]
mod bindings;
#[path = "all/changelog.rs"]
mod changelog;
#[path = "all/cli_check.rs"]
mod cli_check;
#[path = "all/cli_doctor.rs"]
mod cli_doctor;
#[path = "all/cli_habits.rs"]
mod cli_habits;
#[path = "all/cli_keygen.rs"]
mod cli_keygen;
#[path = "all/cli_probe.rs"]
mod cli_probe;
#[path = "all/cli_reference.rs"]
mod cli_reference;
#[path = "all/cli_size.rs"]
mod cli_size;
#[path = "all/cli_token.rs"]
mod cli_token;
#[path = "all/cli_top.rs"]
mod cli_top;
#[path = "all/cluster_delivery.rs"]
mod cluster_delivery;
#[path = "all/cluster_forward.rs"]
mod cluster_forward;
#[path = "all/cluster_meets.rs"]
mod cluster_meets;
#[path = "all/cluster_moves.rs"]
mod cluster_moves;
#[path = "all/cluster_plain.rs"]
mod cluster_plain;
#[path = "all/cluster_rig.rs"]
mod cluster_rig;
#[path = "all/cluster_takeover.rs"]
mod cluster_takeover;
#[path = "all/cluster_unreal.rs"]
mod cluster_unreal;
#[path = "all/command.rs"]
mod command;
#[path = "all/config_agents.rs"]
mod config_agents;
#[path = "all/config_bounds.rs"]
mod config_bounds;
#[path = "all/config_cluster.rs"]
mod config_cluster;
#[path = "all/config_fleet.rs"]
mod config_fleet;
#[path = "all/config_keys.rs"]
mod config_keys;
#[path = "all/config_mistakes.rs"]
mod config_mistakes;
#[path = "all/config_mistakes_backends.rs"]
mod config_mistakes_backends;
#[path = "all/config_mistakes_listeners.rs"]
mod config_mistakes_listeners;
#[path = "all/config_plain.rs"]
mod config_plain;
#[path = "all/config_table.rs"]
mod config_table;
#[path = "all/config_values.rs"]
mod config_values;
#[path = "all/control_access.rs"]
mod control_access;
#[path = "all/control_backends.rs"]
mod control_backends;
#[path = "all/control_browser.rs"]
mod control_browser;
#[path = "all/control_capture.rs"]
mod control_capture;
#[path = "all/control_commands.rs"]
mod control_commands;
#[path = "all/control_denied.rs"]
mod control_denied;
#[path = "all/control_drain.rs"]
mod control_drain;
#[path = "all/control_events.rs"]
mod control_events;
#[path = "all/control_kept.rs"]
mod control_kept;
#[path = "all/control_kernels.rs"]
mod control_kernels;
#[path = "all/control_listeners.rs"]
mod control_listeners;
#[path = "all/control_metrics.rs"]
mod control_metrics;
#[path = "all/control_moves.rs"]
mod control_moves;
#[path = "all/control_now.rs"]
mod control_now;
#[path = "all/control_openapi.rs"]
mod control_openapi;
#[path = "all/control_pages.rs"]
mod control_pages;
#[path = "all/control_privileges.rs"]
mod control_privileges;
#[path = "all/control_reload.rs"]
mod control_reload;
#[path = "all/control_rig.rs"]
mod control_rig;
#[path = "all/control_second.rs"]
mod control_second;
#[path = "all/control_sessions.rs"]
mod control_sessions;
#[path = "all/control_spent.rs"]
mod control_spent;
#[path = "all/control_trace.rs"]
mod control_trace;
#[path = "all/control_upgrade.rs"]
mod control_upgrade;
#[path = "all/control_upgrade_first.rs"]
mod control_upgrade_first;
#[path = "all/control_upgrade_hostile.rs"]
mod control_upgrade_hostile;
#[path = "all/control_upgrade_kinds.rs"]
mod control_upgrade_kinds;
#[path = "all/control_upgrade_leaving.rs"]
mod control_upgrade_leaving;
#[path = "all/control_upgrade_load.rs"]
mod control_upgrade_load;
#[path = "all/control_upgrade_signals.rs"]
mod control_upgrade_signals;
#[path = "all/control_upgrade_ways.rs"]
mod control_upgrade_ways;
#[path = "all/delivery_clients.rs"]
mod delivery_clients;
#[path = "all/delivery_farewell.rs"]
mod delivery_farewell;
#[path = "all/delivery_gateway.rs"]
mod delivery_gateway;
#[path = "all/delivery_load.rs"]
mod delivery_load;
#[path = "all/delivery_ways.rs"]
mod delivery_ways;
#[path = "all/demo_cluster.rs"]
mod demo_cluster;
#[path = "all/fleet_agent.rs"]
mod fleet_agent;
#[path = "all/fleet_agent_upgrade.rs"]
mod fleet_agent_upgrade;
#[path = "all/fleet_announce.rs"]
mod fleet_announce;
#[path = "all/fleet_ask.rs"]
mod fleet_ask;
#[path = "all/fleet_cluster.rs"]
mod fleet_cluster;
#[path = "all/fleet_commands.rs"]
mod fleet_commands;
#[path = "all/fleet_doctor.rs"]
mod fleet_doctor;
#[path = "all/fleet_doubt.rs"]
mod fleet_doubt;
#[allow(dead_code, reason = "the other tests with etcd need all of it")]
#[path = "../crates/fleet/tests/real/rig.rs"]
mod fleet_etcd;
#[path = "all/fleet_example.rs"]
mod fleet_example;
#[path = "all/fleet_gateway.rs"]
mod fleet_gateway;
#[path = "all/fleet_guests.rs"]
mod fleet_guests;
#[path = "all/fleet_half.rs"]
mod fleet_half;
#[path = "all/fleet_large.rs"]
mod fleet_large;
#[path = "all/fleet_page.rs"]
mod fleet_page;
#[path = "all/fleet_players.rs"]
mod fleet_players;
#[path = "all/fleet_rig.rs"]
mod fleet_rig;
#[path = "all/fleet_tokens.rs"]
mod fleet_tokens;
#[path = "all/folder.rs"]
mod folder;
#[path = "all/games_document.rs"]
mod games_document;
#[path = "all/gateway_hostile.rs"]
mod gateway_hostile;
#[path = "all/gateway_play.rs"]
mod gateway_play;
#[path = "all/gateway_rig.rs"]
mod gateway_rig;
#[path = "all/hist_files.rs"]
mod hist_files;
#[path = "all/hold.rs"]
mod hold;
#[path = "all/house_rules.rs"]
mod house_rules;
#[path = "all/io_card.rs"]
mod io_card;
#[path = "all/io_handover.rs"]
mod io_handover;
#[path = "all/io_links.rs"]
mod io_links;
#[path = "all/io_path.rs"]
mod io_path;
#[path = "all/io_rig.rs"]
mod io_rig;
#[path = "all/io_udp.rs"]
mod io_udp;
#[path = "all/key_copies.rs"]
mod key_copies;
#[path = "all/link_backend.rs"]
mod link_backend;
#[path = "all/link_document.rs"]
mod link_document;
#[path = "all/link_gateway.rs"]
mod link_gateway;
#[path = "all/link_header.rs"]
mod link_header;
#[path = "all/link_library.rs"]
mod link_library;
#[path = "all/link_program.rs"]
mod link_program;
#[path = "all/link_versions.rs"]
mod link_versions;
#[path = "all/link_whole.rs"]
mod link_whole;
#[path = "all/load_rig.rs"]
mod load_rig;
#[path = "all/moves_agents.rs"]
mod moves_agents;
#[path = "all/netcode_interop.rs"]
mod netcode_interop;
#[path = "all/netcode_interop_client.rs"]
mod netcode_interop_client;
#[path = "all/netcode_interop_rules.rs"]
mod netcode_interop_rules;
#[path = "all/netcode_vectors.rs"]
mod netcode_vectors;
#[path = "all/netns.rs"]
mod netns;
#[path = "all/oncall.rs"]
mod oncall;
#[path = "all/own.rs"]
mod own;
#[path = "all/plain_game.rs"]
mod plain_game;
#[path = "all/plain_gateway.rs"]
mod plain_gateway;
#[path = "all/readme.rs"]
mod readme;
#[path = "all/sick.rs"]
mod sick;
#[path = "all/sim_seeds.rs"]
mod sim_seeds;
#[path = "all/systemd.rs"]
mod systemd;
#[path = "all/systemd_agent.rs"]
mod systemd_agent;
#[path = "all/systemd_tokens.rs"]
mod systemd_tokens;
#[path = "all/three_hosts.rs"]
mod three_hosts;
#[path = "all/token_languages.rs"]
mod token_languages;
#[path = "all/tuning.rs"]
mod tuning;
#[path = "all/two_hosts.rs"]
mod two_hosts;
#[path = "all/unreal_echo.rs"]
mod unreal_echo;
#[path = "all/unreal_gateway.rs"]
mod unreal_gateway;
#[path = "all/unreal_relay.rs"]
mod unreal_relay;
#[path = "all/unreal_rig.rs"]
mod unreal_rig;
#[path = "all/upgrade_rig.rs"]
mod upgrade_rig;
#[path = "all/xdp_agent.rs"]
mod xdp_agent;
#[path = "all/xdp_gateway.rs"]
mod xdp_gateway;
#[path = "all/xdp_network.rs"]
mod xdp_network;
#[path = "all/xdp_rig.rs"]
mod xdp_rig;
#[path = "all/xdp_upgrade.rs"]
mod xdp_upgrade;
#[path = "all/xdp_wire.rs"]
mod xdp_wire;
#[path = "all/zones.rs"]
mod zones;
