#include <scape/model/gpt.hpp>
#include <scape/model/llama.hpp>
#include <scape/model/model.hpp>

namespace scape::model {

template <class T>
std::unique_ptr<Model<T>> make_model(const config::ModelConfig& config) {
    if (config.family == config::Family::gpt) return std::make_unique<Gpt<T>>(config);
    return std::make_unique<Llama<T>>(config);
}

FlatLayout make_layout(const config::ModelConfig& config) {
    return plan_parameters(config).layout;
}

template std::unique_ptr<Model<float>> make_model(const config::ModelConfig&);

}  // namespace scape::model
