#pragma once
// Step times that the authors of SCAPE measured, in ms: plotting data of the public artifact of
// arXiv 2607.01678. TACC Vista, one GH200 a node and rank, bf16; global batch 1024, micro-batch 8;
// Llama-500M at sequences of 4096, Llama-1.8B at 2048. Their scripts force NCCL onto sockets and
// turn InfiniBand off. Densities are fixed.
//
// What travels there, bytes a parameter there and back: 4 + 4 where the optimizer's state is
// replicated (an all-reduce of fp32), 4 + 2 where it is sharded (bf16 weights return).

#include <array>
#include <string>
#include <vector>

namespace scape::test::artifact {

inline constexpr std::array ranks{4, 8, 16, 32, 64};
using ByRanks = std::array<double, 5>;  // in their order

enum class Kind {
    replicated,
    sharded,
    offloaded  // sharded, error feedback in the CPU's memory
};

struct Row {
    std::string model;  // deck inputs/llama-*.toml
    double density;     // 1: dense AdamS
    Kind kind;
    ByRanks step_ms;
};

inline const std::vector<Row> rows{
    {"500m", 1, Kind::replicated, {8691.3, 4904.0, 3047.3, 2150.5, 1753.7}},
    {"500m", 1, Kind::sharded, {8446.6, 4697.0, 2809.3, 1892.3, 1505.6}},
    {"500m", 0.1, Kind::replicated, {7948.5, 4190.2, 2253.7, 1326.4, 1077.4}},
    {"500m", 0.1, Kind::sharded, {7952.2, 4194.2, 2290.8, 1417.4, 1220.8}},
    {"500m", 0.1, Kind::offloaded, {7978.1, 4172.5, 2297.1, 1398.9, 1250.7}},
    {"500m", 0.01, Kind::replicated, {7927.8, 4092.1, 2155.4, 1234.9, 908.2}},
    {"500m", 0.01, Kind::sharded, {8072.8, 3986.4, 2235.6, 1246.4, 830.6}},
    {"500m", 0.01, Kind::offloaded, {7900.2, 3978.8, 2125.5, 1201.9, 775.2}},
    {"1.8b", 1, Kind::replicated, {14027.0, 9110.5, 6582.9, 5447.7, 4987.2}},
    {"1.8b", 1, Kind::sharded, {13372.8, 8277.2, 5706.7, 4424.5, 3890.2}},
    {"1.8b", 0.1, Kind::replicated, {11788.1, 6348.5, 3706.6, 2432.3, 1983.1}},
    {"1.8b", 0.1, Kind::sharded, {11566.8, 6330.3, 3670.7, 2427.9, 1950.8}},
    {"1.8b", 0.1, Kind::offloaded, {11601.6, 6316.5, 3720.5, 2449.4, 1970.4}},
    {"1.8b", 0.01, Kind::replicated, {11275.7, 5879.9, 3201.3, 1909.3, 1473.5}},
    {"1.8b", 0.01, Kind::sharded, {11070.2, 5746.2, 3058.3, 1743.1, 1216.4}},
    {"1.8b", 0.01, Kind::offloaded, {11271.2, 5727.6, 3084.7, 1797.3, 1279.9}},
};

// The dense rows again, in two parts. They add up to the step: nothing overlaps.
struct Parts {
    std::string model;
    Kind kind;
    ByRanks computation_ms;
    ByRanks communication_ms;
};

inline const std::vector<Parts> dense_parts{
    {"500m",
     Kind::replicated,
     {7838.6, 3910.9, 1976.3, 1002.9, 494.3},
     {852.7, 993.1, 1071.0, 1147.6, 1259.4}},
    {"500m",
     Kind::sharded,
     {7802.8, 3932.4, 1972.6, 997.9, 516.7},
     {643.8, 764.6, 836.7, 894.4, 988.9}},
    {"1.8b",
     Kind::replicated,
     {11001.0, 5551.2, 2793.6, 1423.6, 815.9},
     {3025.9, 3559.3, 3789.3, 4024.1, 4171.3}},
    {"1.8b",
     Kind::sharded,
     {11102.7, 5542.1, 2803.9, 1419.2, 751.7},
     {2270.0, 2735.1, 2902.8, 3005.3, 3138.5}},
};

}  // namespace scape::test::artifact
