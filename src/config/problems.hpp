#pragma once
/// @file
/// All problems of a deck in one message, a line each, in the order of the deck.

#include <scape/config/deck.hpp>

#include <string>
#include <vector>

namespace scape::config {

class Problems {
   public:
    void add(const Where& where, const std::string& text) { list_.push_back({where, text}); }
    bool empty() const { return list_.empty(); }

    /// Throws user_error(usage) unless there are none; at most 20 are shown.
    void throw_if_any();

   private:
    struct Problem {
        Where where;
        std::string text;
    };
    std::vector<Problem> list_;
};

}  // namespace scape::config
