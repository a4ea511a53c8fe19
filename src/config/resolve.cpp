#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>

namespace scape::config {

void resolve_defaults(ModelConfig& model) {
    if (model.kv_heads == 0) {
        model.kv_heads = model.heads;
    }
    if (model.ffn_width == 0) {
        model.ffn_width =
            model.family == Family::gpt ? 4 * model.width : round_up((8 * model.width + 2) / 3, 64);
    }
}

std::string resolved_deck(const RunConfig& config) {
    RunConfig resolved = config;
    resolve_defaults(resolved.model);
    resolved.scape.score = score_of(config);
    std::string out;
    for (const std::string& section : sections()) {
        out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
        for (const Key& key : keys()) {
            if (key.section == section) {
                const std::string line =
                    fmt::format("{} = {}", key.name, to_toml(key.get(resolved)));
                const std::string allowed =
                    key.type == Type::text ? "" : " (" + key.allowed() + ")";
                out += fmt::format("{:<28}  # {}{}\n", line, key.help, allowed);
            }
        }
    }
    return out;
}

}  // namespace scape::config
