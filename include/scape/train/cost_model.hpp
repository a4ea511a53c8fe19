#pragma once
/// @file
/// What a step will take on a machine, before there is one: the step of Trainer::step on one rank,
/// bucket by bucket, with a network beside it.
///
///     rank      | clear | forward ....| head | backward ......| finish | update | next mask |
///     network   |  gathers of the last step  |   | all-to-alls ........ | gathers ....
///
/// Assumptions, each where it is used in cost_model.cpp and cost_model_work.cpp; the large ones:
///  - all ranks are alike and in step: nobody waits for the slowest;
///  - the rank computes its FLOPs at machine.efficiency of the peak, evenly spread over the layers
///    and the head; nothing else slows it down, the network's progress included;
///  - a collective takes (P-1) latency + (P-1) part / bandwidth: a rank sends one message to each
///    of the others over one full-duplex link; collectives take place one after another, in the
///    order in which they are begun;
///  - while the rank computes the network moves at machine.overlap of its rate, while it waits at
///    all of it;
///  - a local pass takes as long as a copy of the bytes that it touches, times machine.local_work.

#include <scape/config/machine.hpp>
#include <scape/config/run_config.hpp>
#include <scape/train/step_cost.hpp>

#include <optional>
#include <vector>

namespace scape::train {

/// One rank's work in a step, whatever the machine. Prepared once for many machines: at thousands
/// of ranks the geometry of the messages takes longer than the rest.
struct StepWork {
    /// Local passes are bytes read and written.
    struct Bucket {
        Index begin = 0;      ///< its first element in the flat buffer
        Index there = 0;      ///< bytes of the message to one rank; codes, positions if they travel
        Index back = 0;       ///< bytes of the own new weights, to each of the others
        Index broadcast = 0;  ///< bytes of a mask of this same step, which is waited for; clt_k
        int broadcasts = 0;   ///< from so many roots
        Index pooled_there = 0;  ///< bytes of the message pool, until the messages are summed
        Index pooled_back = 0;   ///< and until they are unpacked; 0: gathered in place
        double send = 0;         ///< feedback, score, pack
        double sum = 0;          ///< of P messages, and its norm
        double update = 0;       ///< decay, moments, weights; packing of what goes back
        double unpack = 0;
        double select = 0;  ///< score, top k, coded mask: after all updates
    };

    int ranks = 1;
    Index micro_batches = 1;  ///< of one rank
    // FLOPs of one micro-batch
    double layer_flops = 0;      ///< one layer, forward; backward takes twice that
    double recompute_flops = 0;  ///< one layer but the last, in backward
    double head_flops = 0;       ///< forward and backward, which are one pass
    std::vector<Index> groups;   ///< first element of embeddings, layers, final norm, head
    bool tied = false;           ///< there is no group of the head
    std::vector<Bucket> buckets;
    Index mask = 0;        ///< bytes of one rank's coded mask, to each of the others
    double clear = 0;      ///< gradients, before the first forward
    double check = 0;      ///< of each forward pass, fused error feedback
    bool fused = false;    ///< and then all ranks agree before the last backward
    double keep = 0;       ///< error feedback, after the update
    Index pool = 0;        ///< bytes of messages under way
    Index bytes_sent = 0;  ///< by this rank, as step_cost counts them
    MemoryAccount memory;

    double flops() const;  ///< of one rank and step, recomputation included
    double local_bytes() const;
};

/// At the density that the run aims at (sparsity.density), as step_cost. train.global_batch must be
/// a multiple of ranks x train.micro_batch: std::logic_error.
StepWork step_work(const config::RunConfig& config, int ranks);

/// Seconds of one step of many: seconds = compute + local + wait.
struct StepPrediction {
    double seconds = 0;
    double compute = 0;  ///< forward and backward; the step that is ideal
    double local = 0;    ///< passes of optimizer and exchange
    double wire = 0;     ///< what the network is busy for, hidden or not
    double wait = 0;     ///< the part of it that is not hidden
    Index bytes_sent = 0;
    MemoryAccount memory;
};
StepPrediction predict_step(const StepWork& work, const config::Machine& machine);
StepPrediction predict_step(const config::RunConfig& config, int ranks,
                            const config::Machine& machine);

/// Seconds that a collective of P-1 messages of `part_bytes` takes.
double collective_seconds(const config::Machine& machine, int ranks, Index part_bytes);

/// What was measured of one rank, `scape bench step`.
struct MeasuredStep {
    config::RunConfig config;
    int ranks = 1;
    double compute_seconds = 0;
    std::optional<double> local_seconds;
};
/// The machine with the efficiency and, where one of them says so, the local_work that these steps
/// had: medians. Where they were faster than its peak, the peak is raised to what they reached.
config::Machine calibrate(config::Machine machine, const std::vector<MeasuredStep>& steps);

}  // namespace scape::train
