#pragma once
/// @file
/// A bounded ring of device memory for messages, which are freed in the order in which they were
/// taken.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>

#include <deque>
#include <optional>

namespace scape::optim {

class MessagePool {
   public:
    MessagePool() = default;
    explicit MessagePool(Index bytes)
        : memory_("scape::optim::messages", static_cast<std::size_t>(bytes)) {}

    /// `bytes` > 0 of it, aligned; nothing if there is no room before something is freed.
    std::optional<Span<unsigned char>> take(Index bytes);
    /// Gives the oldest back.
    void free_oldest();
    bool empty() const { return taken_.empty(); }
    Index bytes() const { return static_cast<Index>(memory_.extent(0)); }

    static constexpr Index alignment = 256;

   private:
    Vec<unsigned char> memory_;
    std::deque<Range> taken_;  // oldest first
};

}  // namespace scape::optim
