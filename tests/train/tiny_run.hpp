#pragma once
// A model that trains in milliseconds, and one rank's part of a run of it.
#include "support/random.hpp"
#include "support/scratch.hpp"

#include <scape/comm/communicator.hpp>
#include <scape/train/trainer.hpp>

#include <map>
#include <memory>

namespace scape::test {

inline config::RunConfig tiny(config::Family family) {
    config::RunConfig c;
    c.model.family = family;
    c.model.layers = 2;
    c.model.width = 24;
    c.model.heads = 3;
    c.model.kv_heads = 3;
    c.model.ffn_width = 40;
    c.model.max_seq_len = 16;
    c.model.vocab = 37;
    c.data.format = config::DataFormat::synthetic;
    c.train.global_batch = 6;
    c.train.micro_batch = 3;
    c.train.seq_len = 16;
    c.train.steps = 20;
    c.optimizer.warmup_steps = 2;
    c.check.hash_every = 1;
    return c;
}

// Any of 1 to 4 ranks, two micro-batches each; dense steps, a falling density, a fixed one, a
// rising one; a clip that is always at work; several buckets.
inline config::RunConfig tiny_scape(int ranks) {
    config::RunConfig c = tiny(config::Family::llama);
    c.model.tied = false;
    c.train.seq_len = 8;
    c.train.global_batch = 24;
    c.train.micro_batch = c.train.global_batch / ranks / 2;
    c.train.steps = 12;
    c.optimizer.kind = config::OptimizerKind::scape;
    c.optimizer.lr = 5e-3;
    c.optimizer.clip_norm = 0.1;
    c.sparsity.density = 0.02;
    c.sparsity.dense_steps = 2;
    c.sparsity.warmup_steps = 4;
    c.sparsity.cooldown_steps = 3;
    c.comm.bucket_mb = 0.01;
    c.metrics.feedback_every = 3;
    return c;
}

struct Run {
    Run(const config::RunConfig& c, comm::Communicator& communicator)
        : config(c),
          dataset(data::open_dataset(c)),
          trainer(config, communicator, dataset, Exec()) {}

    Run& fresh() {
        trainer.start_fresh();
        return *this;
    }
    // The log's lines.
    std::vector<std::string> resume(const std::string& file) {
        return trainer.resume(io::CheckpointReader(file));
    }
    std::vector<train::StepRecord> steps(Index count) {
        std::vector<train::StepRecord> records;
        for (Index i = 0; i < count; ++i) records.push_back(trainer.step(false));
        return records;
    }
    std::vector<float> weights() { return to_host(trainer.parameters()); }

    config::RunConfig config;
    data::Dataset dataset;
    train::Trainer trainer;
};

inline std::vector<double> losses(const std::vector<train::StepRecord>& records) {
    std::vector<double> all;
    for (const train::StepRecord& r : records) all.push_back(r.loss);
    return all;
}

// One directory for all ranks.
class SharedScratch {
   public:
    explicit SharedScratch(comm::Communicator& comm) : comm_(comm) {
        if (comm.rank() == 0) mine_ = std::make_unique<Scratch>();
        std::string name = mine_ ? mine_->path() : "";
        auto size = static_cast<Index>(name.size());
        comm.broadcast_host(&size, sizeof size, 0);
        name.resize(static_cast<std::size_t>(size));
        comm.broadcast_host(name.data(), size, 0);
        path_ = name;
    }
    ~SharedScratch() { comm_.barrier(); }  // others may still read
    SharedScratch(const SharedScratch&) = delete;
    SharedScratch& operator=(const SharedScratch&) = delete;

    const std::string& path() const { return path_; }
    std::string path(const std::string& name) const { return path_ + "/" + name; }

   private:
    comm::Communicator& comm_;
    std::unique_ptr<Scratch> mine_;
    std::string path_;
};

// All that a checkpoint of this state holds, by array; of error feedback, every rank's in turn.
inline std::map<std::string, std::vector<double>> state_of(train::Trainer& trainer,
                                                           comm::Communicator& comm) {
    const SharedScratch scratch(comm);
    const io::CheckpointReader reader(trainer.save(scratch.path()).path);
    const FlatLayout& layout = trainer.layout();
    std::map<std::string, std::vector<double>> state;
    const auto append = [&](const std::string& array, const auto& flat) {
        const auto host = to_host(flat);
        state[array].insert(state[array].end(), host.begin(), host.end());
    };
    for (const std::string& array : reader.arrays()) {
        const auto n = static_cast<std::size_t>(layout.extent());
        if (array == "visit") {
            const Vec<std::uint32_t> flat("flat", n);
            reader.read_flat(array, layout, flat);
            append(array, flat);
        } else if (array == "next_mask" || array == "in_last_mask") {
            const Vec<std::uint8_t> flat("flat", n);
            reader.read_flat(array, layout, flat);
            append(array, flat);
        } else {
            const Vec<float> flat("flat", n);
            const int ranks = reader.ranks_of(array);
            for (int r = 0; r < ranks; ++r) {
                reader.read_rank(array, r, layout, flat);
                append(array, flat);
            }
            if (ranks == 0) {
                reader.read_flat(array, layout, flat);
                append(array, flat);
            }
        }
    }
    for (const auto& [name, number] : reader.meta().numbers)
        if (name != "skipped_in_a_row") state[name] = {number};
    return state;
}

}  // namespace scape::test
