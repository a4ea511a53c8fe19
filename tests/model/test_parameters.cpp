#include "fixture.hpp"
#include "support/catch.hpp"

#include <scape/base/error.hpp>
#include <scape/model/flops.hpp>

#include <cmath>

using namespace scape;
using config::Family;
using config::ModelConfig;
using scape::test::tiny_config;

namespace {

ModelConfig gpt2(Index layers, Index width, Index heads) {
    ModelConfig c;
    c.layers = layers;
    c.width = width;
    c.heads = heads;
    c.vocab = 50257;
    return c;
}

ModelConfig llama(Index layers, Index width, Index ffn, Index heads, Index kv_heads, Index vocab,
                  bool tied) {
    ModelConfig c;
    c.family = Family::llama;
    c.layers = layers;
    c.width = width;
    c.ffn_width = ffn;
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.vocab = vocab;
    c.tied = tied;
    return c;
}

}  // namespace

TEST_CASE("published models have their published numbers of parameters") {
    CHECK(model::parameter_count(gpt2(12, 768, 12)) == 124439808);
    CHECK(model::parameter_count(gpt2(24, 1024, 16)) == 354823168);
    // Llama by hand: V C (twice if untied) + C + L (2 C + (C + 2 Hkv D) C + C C + 3 F C)
    const Index small = 16 * (2 * 1536 + (1536 + 2 * 768) * 1536 + 1536 * 1536 + 3 * 4096 * 1536);
    CHECK(model::parameter_count(llama(16, 1536, 4096, 16, 8, 32000, false)) ==
          2 * 32000 * 1536 + 1536 + small);
    const Index large = 24 * (2 * 2560 + (2560 + 2 * 640) * 2560 + 2560 * 2560 + 3 * 6912 * 2560);
    const Index tied = model::parameter_count(llama(24, 2560, 6912, 32, 8, 128256, true));
    CHECK(tied == 128256 * 2560 + 2560 + large);
    CHECK(static_cast<double>(tied) == Approx(2.00e9).epsilon(0.005));
    const Index untied = model::parameter_count(llama(24, 2560, 6912, 32, 8, 128256, false));
    CHECK(static_cast<double>(untied) == Approx(2.32e9).epsilon(0.005));
}

TEST_CASE("operations for a token: six for each weight of a product, and attention") {
    const ModelConfig c = gpt2(12, 768, 12);
    const double weights = 12 * 12 * 768.0 * 768 + 50257 * 768.0;
    CHECK(model::flops_per_token(c, 256) == Approx(6 * weights + 6 * 12 * 768.0 * 256));
    ModelConfig l = llama(2, 64, 96, 4, 2, 100, false);
    CHECK(model::flops_per_token(l, 10) ==
          Approx(6 * (2 * (64 * 64 * 2 + 64 * 64 + 3 * 96 * 64) + 6400.0) + 6 * 2 * 64 * 10));
    const double untied = model::flops_per_token(l, 10);
    l.tied = true;
    CHECK(model::flops_per_token(l, 10) == untied);
}

TEST_CASE("tensors lie in forward order, padded rows only where the vocabulary is") {
    for (const Family family : {Family::gpt, Family::llama}) {
        const ModelConfig c = tiny_config(family, false);
        const FlatLayout layout = model::make_layout(c);
        CHECK(layout.tensors().front().name == "wte");
        CHECK(layout.tensors().back().name == "head.weight");
        for (const Tensor& t : layout.tensors()) {
            const bool vocabulary = t.name == "wte" || t.name == "head.weight";
            CHECK(t.storage == (vocabulary ? 64 * 24 : t.size));
        }
        CHECK_FALSE(model::make_layout(tiny_config(family)).contains("head.weight"));
    }
    const FlatLayout gpt = model::make_layout(tiny_config(Family::gpt));
    CHECK(gpt.tensor("h.1.attn.qkv.weight").shape == std::vector<Index>{72, 24});
    CHECK(gpt.tensor("h.0.mlp.fc.weight").shape == std::vector<Index>{41, 24});
    CHECK(gpt.tensor("h.0.mlp.proj.weight").shape == std::vector<Index>{24, 41});
    const FlatLayout grouped = model::make_layout(tiny_config(Family::llama));
    CHECK(grouped.tensor("layers.1.attn.qkv.weight").shape == std::vector<Index>{(3 + 2) * 8, 24});
    CHECK(grouped.tensor("layers.0.mlp.gate_up.weight").shape == std::vector<Index>{82, 24});
}

TEST_CASE("tensors start as GPT-2 starts them") {
    for (const Family family : {Family::gpt, Family::llama}) {
        ModelConfig c = tiny_config(family, false);
        c.init_std = 0.03;
        const auto model = model::make_model<float>(c);
        for (std::size_t i = 0; i < model->layout().tensors().size(); ++i) {
            const std::string& name = model->layout().tensors()[i].name;
            const model::Init init = model->init(static_cast<int>(i));
            INFO(name);
            const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
            if (has("gain") || has("bias")) {
                CHECK(init.stddev == 0);
                CHECK(init.value == (has("gain") ? 1 : 0));
            } else {
                CHECK(init.stddev ==
                      Approx(has("proj") || has("down") ? 0.03 / std::sqrt(4.0) : 0.03));
            }
        }
    }
}

TEST_CASE("sizes that contradict each other are refused") {
    const auto refused = [](ModelConfig c, const std::string& part) {
        try {
            model::make_model<float>(c);
        } catch (const user_error& e) {
            CHECK(e.code() == ExitCode::usage);
            CHECK(std::string(e.what()).find(part) != std::string::npos);
            return;
        }
        FAIL_CHECK("accepted, but not right: " << part);
    };
    ModelConfig c = tiny_config(Family::gpt);
    c.heads = 5;
    refused(c, "model.heads = 5");
    c = tiny_config(Family::llama);
    c.kv_heads = 2;
    refused(c, "model.kv_heads = 2");
    c = tiny_config(Family::llama);
    c.heads = 8;
    refused(c, "= 3 is odd");
    c = tiny_config(Family::gpt);
    c.layers = 0;
    refused(c, "layers 0");
}
