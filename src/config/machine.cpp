#include <scape/config/machine.hpp>

#include "section.hpp"
#include "toml_file.hpp"

#include <fmt/format.h>

#include <sstream>

namespace scape::config {
namespace {

struct MachineKey : KeyRule {
    double Machine::*member = nullptr;  // of a number
    bool required = true;
};

MachineKey number(const char* section, const char* name, double Machine::*member, Bounds bounds,
                  const char* help) {
    MachineKey key;
    key.section = section;
    key.name = name;
    key.type = Type::number;
    key.bounds = bounds;
    key.help = help;
    key.member = member;
    return key;
}

MachineKey optional(MachineKey key) {
    key.required = false;
    return key;
}

MachineKey name_key() {
    MachineKey key;
    key.name = "name";
    key.type = Type::text;
    key.help = "what tables call it";
    return optional(key);
}

/// Every key once. A new one is a member of Machine and a row here.
const std::vector<MachineKey>& table() {
    using M = Machine;
    static const std::vector<MachineKey> keys{
        name_key(),
        number("compute", "peak_tflops", &M::peak_tflops, between(1e-6, 1e9),
               "1e12 FLOP/s of matrix products, in the type they are computed in"),
        number("compute", "efficiency", &M::efficiency, between(1e-6, 1),
               "share of it that forward and backward reach"),
        number("memory", "gb_per_s", &M::memory_gb_per_s, between(1e-6, 1e9),
               "1e9 bytes/s that a copy reads and writes"),
        optional(number("memory", "capacity_gb", &M::capacity_gb, between(0, 1e9),
                        "1e9 bytes of a rank; 0 = unknown")),
        optional(number("memory", "local_work", &M::local_work, between(1e-6, 1e6),
                        "time of optimizer and exchange over a copy's of the same bytes")),
        number("network", "gb_per_s", &M::network_gb_per_s, between(1e-6, 1e9),
               "1e9 bytes/s that a rank sends while it receives as much"),
        number("network", "latency_us", &M::latency_us, between(0, 1e9),
               "1e-6 s of one message to one rank"),
        optional(number("network", "overlap", &M::overlap, between(0, 1),
                        "share of gb_per_s that is there while a rank computes")),
    };
    return keys;
}

const MachineKey& key_of(const KeyRule& rule) {
    return static_cast<const MachineKey&>(rule);  // all rules here come from table()
}

Value value_of(const Machine& machine, const MachineKey& key) {
    return key.member != nullptr ? Value(machine.*key.member) : Value(machine.name);
}

/// Lines as comments; other control characters are not allowed in TOML.
std::string comments(const std::string& notes) {
    std::istringstream in(notes);
    std::string out, row;
    while (std::getline(in, row)) {
        for (char& c : row) {
            c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
        }
        out += row.empty() ? "#\n" : "# " + row + "\n";
    }
    return out;
}

}  // namespace

Machine parse_machine(const std::string& text, const std::string& name) {
    Machine machine;
    Problems problems;
    const auto given = take_all(text, name, rules_of(table()), problems,
                                [&](const KeyRule& rule, const Value& value, const Where&) {
                                    if (const auto member = key_of(rule).member) {
                                        machine.*member = std::get<double>(value);
                                    } else {
                                        machine.name = std::get<std::string>(value);
                                    }
                                });
    for (const MachineKey& key : table()) {
        if (key.required && given.count(key.full_name()) == 0) {
            problems.add({name, 0, 0}, fmt::format("{} is missing: {}; allowed: {}",
                                                   key.full_name(), key.help, key.allowed()));
        }
    }
    problems.throw_if_any();
    return machine;
}

Machine load_machine(const std::string& path) {
    return parse_machine(read_toml(path, "machine file",
                                   "inputs/machines/ has some, `scape bench comm --write FILE` "
                                   "makes one"),
                         path);
}

std::string machine_file(const Machine& machine, const std::string& notes) {
    std::string out = comments(notes);
    std::string section;
    for (const MachineKey& key : table()) {
        if (key.section != section) {
            out += fmt::format("\n[{}]\n", key.section);
            section = key.section;
        }
        const std::string line = fmt::format("{} = {}", key.name, to_toml(value_of(machine, key)));
        out += fmt::format("{:<28}  # {}\n", line, key.help);
    }
    return out;
}

}  // namespace scape::config
