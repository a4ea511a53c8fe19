#include "mpi_progress.hpp"

#include <scape/comm/mpi.hpp>
#include <scape/comm/mpi_native.hpp>

#include <fmt/format.h>

#include <cstdlib>

namespace scape::comm {

namespace {

// Under a launcher whose process management MPI does not understand every process is its own world
// of one rank, and P copies of the same run would overwrite each other's files.
void refuse_split_world(int size) {
    const char* tasks = std::getenv("SLURM_NTASKS");
    if (size > 1 || tasks == nullptr || std::atoi(tasks) <= 1) return;
    throw agreed_error(
        ExitCode::usage,
        fmt::format(
            "MPI sees 1 rank, but SLURM_NTASKS is {}: the launcher and the MPI library do "
            "not speak the same process management interface.\n"
            "  Start with the launcher of this MPI (mpirun, ibrun), or with srun --mpi=pmix "
            "(srun --mpi=list shows what there is).\n"
            "  For one rank on purpose: srun -n 1.",
            tasks));
}

// Open MPI over TCP writes a large message into the socket as a whole, so that whatever begins
// after it, handshakes too, queues behind it, and the link idles in between. In fragments messages
// take turns: a tenth less time for a dense step at 1 Gbit/s (tools/netlab). Nobody else reads
// it.
void prefer_fragments_over_tcp() {
    setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
}

class World : public MpiWorld {
   public:
    World(int* argc, char*** argv) {
        int initialized = 0;
        int level = MPI_THREAD_SINGLE;
        SCAPE_MPI_CHECK(MPI_Initialized(&initialized));
        mine_ = initialized == 0;
        if (mine_) {
            prefer_fragments_over_tcp();
            SCAPE_MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level));
        } else {
            SCAPE_MPI_CHECK(MPI_Query_thread(&level));
        }
        try {
            require_funneled(level);
            communicator_ = make_mpi(MPI_COMM_WORLD);
            refuse_split_world(communicator_->size());
            count_node();
        } catch (...) {
            finish();
            throw;
        }
    }
    ~World() override { finish(); }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    Communicator& communicator() override { return *communicator_; }
    int ranks_on_node() const override { return ranks_on_node_; }
    int rank_on_node() const override { return rank_on_node_; }
    std::string library() const override {
        char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
        int length = 0;
        SCAPE_MPI_CHECK(MPI_Get_library_version(text, &length));
        const std::string whole(text, static_cast<std::size_t>(length));
        return whole.substr(0, whole.find_first_of(",\n"));
    }
    bool has_progress_thread() const override { return MpiProgress::possible(); }

   private:
    // FUNNELED is the next of MPI's four ordered levels.
    static void require_funneled(int level) {
        if (level >= MPI_THREAD_FUNNELED) return;
        throw agreed_error(ExitCode::fault,
                           "the MPI library offers MPI_THREAD_SINGLE, but MPI_THREAD_FUNNELED is "
                           "needed (threads compute while one of them communicates): use an MPI "
                           "built with thread support");
    }
    void count_node() {
        MPI_Comm node = MPI_COMM_NULL;
        SCAPE_MPI_CHECK(
            MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
        SCAPE_MPI_CHECK(MPI_Comm_size(node, &ranks_on_node_));
        SCAPE_MPI_CHECK(MPI_Comm_rank(node, &rank_on_node_));
        SCAPE_MPI_CHECK(MPI_Comm_free(&node));
    }
    void finish() {
        communicator_.reset();
        if (mine_) MPI_Finalize();
    }

    bool mine_ = false;
    std::unique_ptr<Communicator> communicator_;
    int ranks_on_node_ = 1;
    int rank_on_node_ = 0;
};

}  // namespace

std::unique_ptr<MpiWorld> make_mpi_world(int* argc, char*** argv) {
    return std::make_unique<World>(argc, argv);
}

bool mpi_built() {
    return true;
}

}  // namespace scape::comm
