#pragma once
/// @file
/// What a machine can do, as one rank sees it: the file that `scape bench comm` writes and `scape
/// project` reads (inputs/machines/).

#include <string>

namespace scape::config {

/// Rates are those of one rank while all ranks of its node work. Keys are called as the members,
/// but for memory.gb_per_s and network.gb_per_s. Every key must be given but name, capacity_gb,
/// local_work and overlap, whose defaults are these.
struct Machine {
    std::string name;

    // [compute]
    double peak_tflops = 0;  ///< of the matrix products, in the format that they are computed in
    double efficiency = 0;   ///< (0, 1] share of it that forward and backward reach

    // [memory]
    double memory_gb_per_s = 0;  ///< gb_per_s: bytes that a copy reads and writes, 1e9 a second
    double capacity_gb = 0;      ///< memory of one rank, 1e9 bytes; 0: unknown
    /// Seconds that the passes of an optimizer and exchange take, over those that a copy of the
    /// bytes that they touch would.
    double local_work = 1;

    // [network]
    double network_gb_per_s = 0;  ///< gb_per_s: a rank sends, and receives at the same time
    double latency_us = 0;        ///< of one message to one rank
    /// [0, 1] share of the network's rate that is there while the rank computes: 1 if messages move
    /// on by themselves, 0 if only while they are waited for.
    double overlap = 1;

    bool operator==(const Machine&) const = default;
};

/// Throws user_error(usage) that lists all problems, a line each: file, line and column, key, value
/// seen, value allowed, nearest known key.
Machine load_machine(const std::string& path);
/// The same from a text; `name` is used in messages.
Machine parse_machine(const std::string& text, const std::string& name);

/// A complete file with a comment on every key; parse_machine of it gives the same machine, bit for
/// bit. `notes`: lines that go on top as comments (how it was measured).
std::string machine_file(const Machine& machine, const std::string& notes = "");

}  // namespace scape::config
