#include <scape/config/machine.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "refusal.hpp"

using namespace scape;
using namespace scape::config;

namespace {

const std::string least =
    "[compute]\npeak_tflops = 67\nefficiency = 0.5\n"
    "[memory]\ngb_per_s = 4000\n"
    "[network]\ngb_per_s = 50\nlatency_us = 5.5\n";

std::string refused(const std::string& text) {
    return refusal([&] { parse_machine(text, "m.toml"); });
}

std::string replaced(const std::string& part, const std::string& by) {
    const std::size_t at = least.find(part);
    REQUIRE(at != std::string::npos);
    std::string text = least;
    return text.replace(at, part.size(), by);
}

Machine odd_machine() {
    Machine m;
    m.name = "two \"odd\" nodes \\ \xC3\xA4\ttab";
    m.peak_tflops = 0.1 + 0.2;
    m.efficiency = 1.0 / 3;
    m.memory_gb_per_s = 1.000000000000001e-6;
    m.capacity_gb = 8.123456789012345e8;
    m.local_work = std::nextafter(1.0, 2.0);
    m.network_gb_per_s = 12;
    m.latency_us = 5e-324;
    m.overlap = 0;
    return m;
}

}  // namespace

TEST_CASE("a machine file gives every value, and the rest has defaults") {
    const Machine m = parse_machine(least, "m.toml");
    CHECK(m.peak_tflops == 67.0);  // a whole number where a number is expected
    CHECK(m.efficiency == 0.5);
    CHECK(m.memory_gb_per_s == 4000.0);
    CHECK(m.network_gb_per_s == 50.0);
    CHECK(m.latency_us == 5.5);
    CHECK(m.name == Machine{}.name);
    CHECK(m.capacity_gb == Machine{}.capacity_gb);
    CHECK(m.local_work == Machine{}.local_work);
    CHECK(m.overlap == Machine{}.overlap);
    const Machine all = parse_machine("name = \"x\"\n" + least + "overlap = 0.25\n", "m.toml");
    CHECK(all.name == "x");
    CHECK(all.overlap == 0.25);
}

TEST_CASE("a machine file that is written comes back bit for bit, with a comment on every key") {
    for (const Machine& m : {odd_machine(), parse_machine(least, "m.toml")}) {
        const std::string text = machine_file(m, "measured by\r\n\nhand\x01");
        INFO(text);
        CHECK(parse_machine(text, "again") == m);
        CHECK(has(text, "# measured by \n#\n# hand \n"));
        std::istringstream in(text);
        std::string row;
        int keys = 0;
        while (std::getline(in, row)) {
            const bool is_key = !row.empty() && row[0] != '#' && row[0] != '[';
            keys += is_key ? 1 : 0;
            CHECK((!is_key || has(row, "  # ")));
        }
        CHECK(keys == 9);
    }
}

TEST_CASE("all problems of a machine file are listed, with place, value and what is allowed") {
    const std::string m = refused(
        "nmae = \"x\"\n[compute]\npeak_tflops = -1\neficiency = 0.5\n[network]\n"
        "gb_per_s = \"50\"\nlatency_us = 1\noverlap = 1.5\n[netwrk]\n");
    CHECK_SAYS(m, "m.toml:1:1: nmae: a key outside of a section; did you mean name?\n");
    CHECK_SAYS(m,
               "m.toml:3:15: compute.peak_tflops = -1: out of range; allowed: a number, 1e-06 "
               "to 1000000000\n");
    CHECK_SAYS(m, "m.toml:4:1: compute.eficiency: unknown key; did you mean compute.efficiency?\n");
    CHECK_SAYS(
        m,
        "m.toml:6:12: network.gb_per_s = \"50\" is text; allowed: a number, 1e-06 to 1000000000");
    CHECK_SAYS(m, "m.toml:8:11: network.overlap = 1.5: out of range; allowed: a number, 0 to 1");
    CHECK_SAYS(m,
               "m.toml:9:2: [netwrk]: unknown section; did you mean [network]?; sections: "
               "compute, memory, network");
    CHECK_SAYS(m, "\nm.toml: compute.efficiency is missing: ");
    CHECK_SAYS(m, "\nm.toml: memory.gb_per_s is missing: ");
    // Given, if wrongly, or not needed: not missing.
    for (const char* key : {"peak_tflops", "network.gb_per_s", "overlap", "capacity_gb", "name"}) {
        CHECK_FALSE(has(m, std::string(key) + " is missing"));
    }
}

TEST_CASE("every needed key of a machine file is asked for") {
    for (const char* line : {"peak_tflops = 67\n", "efficiency = 0.5\n", "gb_per_s = 4000\n",
                             "gb_per_s = 50\n", "latency_us = 5.5\n"}) {
        const std::string key = std::string(line).substr(0, std::string(line).find(' '));
        const std::string m = refused(replaced(line, ""));
        CHECK_SAYS(m, "." + key + " is missing");
        CHECK(m.find('\n') == std::string::npos);
    }
}

TEST_CASE("values of a machine file have ranges") {
    const std::vector<std::pair<const char*, const char*>> wrong{
        {"peak_tflops = 67", "peak_tflops = 0"},
        {"peak_tflops = 67", "peak_tflops = nan"},
        {"peak_tflops = 67", "peak_tflops = inf"},
        {"efficiency = 0.5", "efficiency = 0"},
        {"efficiency = 0.5", "efficiency = 1.01"},
        {"gb_per_s = 4000", "gb_per_s = 0"},
        {"gb_per_s = 50", "gb_per_s = 0"},
        {"latency_us = 5.5", "latency_us = -0.1"},
        {"gb_per_s = 4000", "gb_per_s = 1\nlocal_work = 0"},
        {"gb_per_s = 4000", "gb_per_s = 1\ncapacity_gb = -1"},
        {"gb_per_s = 50", "gb_per_s = 50\noverlap = -0.1"},
    };
    for (const auto& [good, bad] : wrong) {
        INFO(bad);
        CHECK_SAYS(refused(replaced(good, bad)), "; allowed: a number, ");
    }
    CHECK_NOTHROW(parse_machine(replaced("efficiency = 0.5", "efficiency = 1"), "m"));
    CHECK_NOTHROW(parse_machine(replaced("latency_us = 5.5", "latency_us = 0"), "m"));
}

TEST_CASE("a key given twice, and text that is no TOML, are refused with their line") {
    CHECK(refused(least + "latency_us = 3\n") ==
          "m.toml:9:14: latency_us is given twice (first in line 8); delete one of them");
    CHECK_SAYS(refused("[compute]\npeak_tflops 3\n"), "m.toml:2:");
    CHECK_SAYS(refused("name = 3\n" + least),
               "m.toml:1:8: name = 3 is a whole number; allowed: text");
    CHECK_SAYS(refused("[name]\nx = 3\n" + least), "name = {...} is a table; allowed: text");
    CHECK_SAYS(refused("memory = 3\n"), "memory is a whole number; it must be a section");
}

TEST_CASE("files that are no machine file") {
    CHECK_SAYS(refusal([] { load_machine("/nowhere/x.toml"); }),
               "machine file /nowhere/x.toml: cannot be read: No such file");
    CHECK_SAYS(refusal([] { load_machine("/nowhere/x.toml"); }), "scape bench comm --write");
    CHECK_SAYS(refusal([] { load_machine("/tmp"); }), "/tmp: is a folder");
    const std::string deck = std::string(SCAPE_INPUTS) + "/tiny-gpt.toml";
    CHECK_SAYS(refusal([&] { load_machine(deck); }), deck + ":");
}

TEST_CASE("every file in inputs/machines loads, and has a comment on every key") {
    int files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(SCAPE_INPUTS) + "/machines")) {
        INFO(entry.path().string());
        ++files;
        REQUIRE(entry.path().extension() == ".toml");
        const Machine m = load_machine(entry.path().string());
        CHECK_FALSE(m.name.empty());
        CHECK(m.capacity_gb > 0);
        std::ifstream in(entry.path());
        std::string row;
        while (std::getline(in, row)) {
            const bool is_key = !row.empty() && row[0] != '#' && row[0] != '[';
            INFO(row);
            CHECK((!is_key || has(row, "  # ")));
            CHECK(row.size() <= 100);
        }
    }
    CHECK(files >= 3);
}
