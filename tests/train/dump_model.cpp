// Writes what the PyTorch comparison needs, as raw little-endian fp32 and int32 files beside a
// manifest.json: the initial weights, the tokens of every step, the logits and gradients of the
// first micro-batch, and the losses of all steps.
//
//     dump_model DECK OUT_DIR [key=value ...]

#include <scape/comm/communicator.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/validate.hpp>
#include <scape/data/dataset.hpp>
#include <scape/model/initial_weights.hpp>
#include <scape/train/micro_batch.hpp>
#include <scape/train/trainer.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>

using namespace scape;

namespace {

template <class T>
void write_raw(const std::string& path, const T* data, Index count) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(data), count * static_cast<Index>(sizeof(T)));
    if (!out) throw std::runtime_error("cannot write " + path);
}

template <class View>
void write_tensors(const std::string& prefix, const FlatLayout& layout, const View& flat) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), flat);
    for (const Tensor& t : layout.tensors())
        write_raw(prefix + t.name, host.data() + t.offset, t.size);
}

void dump(const config::RunConfig& config, const std::string& dir) {
    const Exec exec;
    const data::Dataset dataset = data::open_dataset(config);
    const Index batch = config.train.global_batch;
    const Index seq = config.train.seq_len;
    nlohmann::json manifest;

    // One pass with the initial weights
    {
        const auto model = model::make_model<float>(config.model);
        const FlatLayout& layout = model->layout();
        const Vec<float> parameters("parameters", layout.extent());
        const Vec<float> gradients("gradients", layout.extent());
        const HostVec<float> initial("initial", layout.extent());
        model::fill_initial(*model, static_cast<std::uint64_t>(config.run.seed),
                            {0, layout.extent()}, initial);
        Kokkos::deep_copy(parameters, initial);
        model->bind(parameters, gradients);
        model->allocate(batch, seq);
        data::BatchLoader loader(batch, seq);
        loader.fill(exec, *dataset.train, 0, batch);
        const model::Batch all = train::micro_batch(loader, 0, batch);
        model->forward(exec, all, true, {});
        const Vec<float> logits("logits", config.model.vocab);
        std::vector<float> all_logits;
        for (Index row = 0; row < batch * seq; ++row) {
            model->logits(exec, all, row, logits);
            const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits);
            all_logits.insert(all_logits.end(), host.data(), host.data() + host.extent(0));
        }
        const Vec<double> loss("loss", 1);
        const float scale = 1.f / static_cast<float>(batch * seq);
        model->loss(exec, all, scale, loss, {});
        model->backward(exec, all, {});
        exec.fence();
        write_raw(dir + "/logits", all_logits.data(), static_cast<Index>(all_logits.size()));
        write_tensors(dir + "/weight.", layout, parameters);
        write_tensors(dir + "/gradient.", layout, gradients);
        for (const Tensor& t : layout.tensors())
            manifest["tensors"].push_back({{"name", t.name}, {"shape", t.shape}});
    }

    // The first steps of training
    const auto self = comm::make_self();
    train::Trainer trainer(config, *self, dataset, exec);
    trainer.start_fresh();
    std::vector<Token> tokens(config.train.steps * batch * seq);
    std::vector<Token> targets(tokens.size());
    for (Index s = 0; s < config.train.steps; ++s) {
        for (Index b = 0; b < batch; ++b) {
            const Index at = (s * batch + b) * seq;
            dataset.train->sample(s * batch + b, &tokens[at], &targets[at]);
        }
        manifest["losses"].push_back(trainer.step(false).loss);
    }
    write_raw(dir + "/tokens", tokens.data(), static_cast<Index>(tokens.size()));
    write_raw(dir + "/targets", targets.data(), static_cast<Index>(targets.size()));

    manifest["family"] = config.model.family == config::Family::gpt ? "gpt" : "llama";
    manifest["layers"] = config.model.layers;
    manifest["width"] = config.model.width;
    manifest["heads"] = config.model.heads;
    manifest["kv_heads"] = config.model.kv_heads;
    manifest["vocab"] = config.model.vocab;
    manifest["tied"] = config.model.tied;
    manifest["eps"] = config.model.norm_eps;
    manifest["rope_base"] = config.model.rope_base;
    manifest["batch"] = batch;
    manifest["seq"] = seq;
    manifest["steps"] = config.train.steps;
    const config::OptimizerSection& o = config.optimizer;
    manifest["optimizer"] = {{"lr", o.lr},   {"beta1", o.beta1},        {"beta2", o.beta2},
                             {"eps", o.eps}, {"decay", o.weight_decay}, {"clip", o.clip_norm}};
    std::ofstream(dir + "/manifest.json") << manifest.dump();
}

}  // namespace

int main(int argc, char** argv) {
    Kokkos::ScopeGuard guard(argc, argv);
    try {
        const std::vector<std::string> overrides(argv + 3, argv + argc);
        const config::LoadedDeck deck = config::load_deck(argv[1], config::as_overrides(overrides));
        config::validate(deck, 1);
        dump(deck.config, argv[2]);
    } catch (const std::exception& e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}
