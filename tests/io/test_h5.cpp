// HDF5's owners and errors, attributes, and linear ranges of data sets of any shape.
#include <scape/io/h5.hpp>

#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <numeric>

using namespace scape;
namespace h5 = io::h5;

TEST_CASE("chunks: whole trailing dimensions, nearly equal, of at most a million elements") {
    const auto chunk = [](const std::vector<Index>& shape) { return h5::chunk_shape(shape); };
    CHECK(chunk({1}) == std::vector<Index>{1});
    CHECK(chunk({7, 3}) == std::vector<Index>{7, 3});
    CHECK(chunk({h5::chunk_elements}) == std::vector<Index>{h5::chunk_elements});
    CHECK(chunk({h5::chunk_elements + 1}) == std::vector<Index>{h5::chunk_elements / 2 + 1});
    CHECK(chunk({50257, 768}) == std::vector<Index>{1359, 768});
    CHECK(chunk({5, 3000000}) == std::vector<Index>{1, 1000000});
    for (const auto& shape : std::vector<std::vector<Index>>{
             {1366, 768}, {3, 1031, 977}, {1048577, 3}, {2, 2, 2}, {1, 1, 5000011}}) {
        Index elements = 1, stored = 1, wanted = 1;
        const auto c = chunk(shape);
        for (std::size_t d = 0; d < shape.size(); ++d) {
            elements *= c[d];
            stored *= (shape[d] + c[d] - 1) / c[d] * c[d];
            wanted *= shape[d];
        }
        CHECK(elements <= h5::chunk_elements);
        CHECK(stored <= wanted * 1.01 + 16);
    }
}

TEST_CASE("any range of elements of a data set, in row-major order") {
    const test::Scratch dir;
    for (const auto& shape :
         std::vector<std::vector<Index>>{{17}, {1}, {3, 4}, {5, 1}, {2, 3, 5}}) {
        const h5::Id file = h5::create_file(dir.path("a.h5"));
        const h5::Id set = h5::create_dataset(file, "group/values", shape);
        CHECK(h5::shape(set) == shape);
        Index size = 1;
        for (const Index n : shape) size *= n;
        std::vector<float> wanted(size, 0);
        h5::write(set, 0, size, wanted.data());
        float next = 1;
        for (Index begin = 0; begin <= size; ++begin) {
            for (Index end = begin; end <= size; ++end) {
                std::vector<float> part(end - begin);
                std::iota(part.begin(), part.end(), next);
                std::copy(part.begin(), part.end(), wanted.begin() + begin);
                next += static_cast<float>(part.size());
                h5::write(set, begin, end, part.data());
                std::vector<float> whole(size), read(end - begin);
                h5::read(set, 0, size, whole.data());
                CHECK(whole == wanted);
                h5::read(set, begin, end, read.data());
                CHECK(read == part);
            }
        }
    }
}

TEST_CASE("attributes of all kinds, also large ones") {
    const test::Scratch dir;
    const std::string big(300000, 'y');
    {
        const h5::Id file = h5::create_file(dir.path("a.h5"));
        h5::write_attribute(file, "index", Index{-1} - (Index{1} << 60));
        h5::write_attribute(file, "number", 0.1);
        h5::write_attribute(file, "text", std::string("\xc3\xa4 b"));
        h5::write_attribute(file, "empty", std::string());
        h5::write_attribute(file, "big", big);
    }
    const h5::Id file = h5::open_file(dir.path("a.h5"));
    CHECK(h5::read_index(file, "index") == Index{-1} - (Index{1} << 60));
    CHECK(h5::read_number(file, "number") == 0.1);
    CHECK(h5::read_text(file, "text") == "\xc3\xa4 b");
    CHECK(h5::read_text(file, "empty").empty());
    CHECK(h5::read_text(file, "big") == big);
    CHECK(h5::attributes(file) ==
          std::vector<std::string>{"big", "empty", "index", "number", "text"});
    CHECK(h5::has_attribute(file, "big"));
    CHECK_FALSE(h5::has_attribute(file, "small"));
    CHECK_THROWS_AS(h5::read_index(file, "small"), h5::error);
    CHECK_THROWS_AS(h5::read_text(file, "number"), h5::error);
}

TEST_CASE("groups and data sets are listed, sorted, with their paths") {
    const test::Scratch dir;
    const h5::Id file = h5::create_file(dir.path("a.h5"));
    h5::create_group(file, "zeta");
    h5::create_group(file, "alpha");
    h5::create_dataset(file, "alpha/x/y", {2});
    h5::create_dataset(file, "alpha/b", {2});
    CHECK(h5::groups(file) == std::vector<std::string>{"alpha", "zeta"});
    CHECK(h5::datasets(h5::open_group(file, "alpha")) == std::vector<std::string>{"b", "x/y"});
    CHECK(h5::exists(file, "alpha"));
    CHECK_FALSE(h5::exists(file, "beta"));
}

TEST_CASE("errors carry the call and HDF5's reason, and HDF5 prints nothing itself") {
    const test::Scratch dir;
    std::fflush(stderr);
    const int saved = ::dup(2);
    REQUIRE(std::freopen(dir.path("stderr").c_str(), "w", stderr) != nullptr);
    std::string missing, folder;
    try {
        h5::open_file(dir.path("none.h5"));
    } catch (const h5::error& e) {
        missing = e.what();
    }
    try {
        h5::create_file(dir.path("no/such/folder.h5"));
    } catch (const h5::error& e) {
        folder = e.what();
    }
    std::fflush(stderr);
    ::dup2(saved, 2);
    ::close(saved);
    CHECK(missing == "H5Fopen failed: No such file or directory (errno 2)");
    CHECK(folder == "H5Fcreate failed: No such file or directory (errno 2)");
    CHECK(test::read_file(dir.path("stderr")).empty());
}
