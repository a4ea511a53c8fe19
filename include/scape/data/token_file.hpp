#pragma once
/// @file
/// Token files: bytes of a text, or little-endian 16- or 32-bit token ids without a header. The
/// format is declared, never guessed; an id is checked, never clamped or wrapped.

#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>

#include <string>
#include <utility>
#include <vector>

namespace scape::data {

/// Bytes of one token: 1 (text), 2 (raw_u16) or 4 (raw_u32).
Index token_bytes(config::DataFormat format);

/// One file, or several seen as one sequence of tokens. They stay on disk: reads go through a
/// bounded buffer, so files may be larger than memory. All counts are 64 bits wide.
class TokenFiles {
   public:
    struct File {
        std::string path;  ///< real path, symbolic links resolved
        Index first = 0;   ///< its first token, counted over all files
        Index tokens = 0;
    };

    /// `pattern`: a path, or a shell pattern (* ? [..]) whose matches are taken in sorted order.
    /// Directories among the matches are skipped, and a file that several matches lead to counts
    /// once. Throws user_error(data) where nothing matches, or where a file is missing, not
    /// readable, empty, or no whole number of tokens.
    TokenFiles(const std::string& pattern, config::DataFormat format, Index vocab);

    Index tokens() const { return tokens_; }
    const std::vector<File>& files() const { return files_; }
    config::DataFormat format() const { return format_; }
    Index vocab() const { return vocab_; }

    /// Tokens [first, first + count), from as many files as they lie in. Throws user_error(data)
    /// on an id >= vocab (naming file, token, byte and id) and where a file has become shorter;
    /// std::out_of_range outside [0, tokens()].
    void read(Index first, Index count, Token* out) const;

   private:
    /// Owner of an open file.
    class Descriptor {
       public:
        explicit Descriptor(const std::string& path);
        Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
        ~Descriptor();
        operator int() const { return number_; }

       private:
        int number_;
    };

    void read_part(const File& file, int descriptor, Index first, Index count, Token* out) const;

    config::DataFormat format_;
    Index vocab_;
    Index tokens_ = 0;
    std::vector<File> files_;
    std::vector<Descriptor> open_;  ///< of all files, or empty when there are too many
};

}  // namespace scape::data
