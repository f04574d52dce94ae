/* Mappings and their lifetime: who may still touch an address, after close and after fork.
 * Knows pages and descriptors; knows nothing of what lies in them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nds_core.h"

/* ---- live words: handed out from pages that a forked child finds zeroed ---- */

#define LIVE_PER_PAGE 512

struct live_page {
    struct live_page *next;
    uint64_t *words; /* the wiped page */
    unsigned used;   /* words handed out so far */
};

static struct live_page *pages;
static uint64_t **free_words;
static size_t free_count, free_room;

static uint64_t *live_alloc(void)
{
    if (free_count)
        return free_words[--free_count];
    if (!pages || pages->used == LIVE_PER_PAGE) {
        /* Room for every word of every page, so that giving one back never has to allocate. */
        uint64_t **room = realloc(free_words, (free_room + LIVE_PER_PAGE) * sizeof *room);
        struct live_page *page = malloc(sizeof *page);
        if (room)
            free_words = room;
        if (!room || !page) {
            free(page);
            return NULL;
        }
        void *words =
            mmap(NULL, LIVE_PER_PAGE * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (words == MAP_FAILED || madvise(words, LIVE_PER_PAGE * sizeof(uint64_t), MADV_WIPEONFORK) != 0) {
            if (words != MAP_FAILED)
                munmap(words, LIVE_PER_PAGE * sizeof(uint64_t));
            free(page);
            return NULL;
        }
        free_room += LIVE_PER_PAGE;
        *page = (struct live_page){pages, words, 0};
        pages = page;
    }
    return &pages->words[pages->used++];
}

static void live_free(uint64_t *word)
{
    free_words[free_count++] = word;
}

uint64_t nds_process_epoch(void)
{
    static uint64_t *word; /* wiped in a child */
    static uint64_t count; /* inherited by it */
    if (!word && !(word = live_alloc()))
        return 0;
    if (!*word)
        *word = ++count;
    return *word;
}

/* ---- mappings ---- */

/* Pages past the end of a file can be mapped, but a touch of them ends the process with SIGBUS. */
static int check_end(int fd, uint64_t offset, size_t size)
{
    struct stat st;
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) != 0)
        return -errno;
    uint64_t end = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : UINT64_MAX;
    return offset > end || size > end - offset ? -ENODATA : 0;
}

int nds_map(struct nds_mapping *m, int fd, uint64_t offset, size_t size, bool writable)
{
    int outside = check_end(fd, offset, size);
    if (outside)
        return outside;
    uint64_t *live = live_alloc();
    if (!live)
        return -ENOMEM;
    int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *base = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), flags, fd, (off_t)offset);
    int failed = base == MAP_FAILED ? errno : 0;
    if (!failed && madvise(base, size, MADV_DONTFORK) != 0) {
        failed = errno;
        munmap(base, size);
    }
    if (failed) {
        live_free(live);
        return -failed;
    }
    *live = writable ? NDS_LIVE_WRITE : NDS_LIVE_READ;
    *m = (struct nds_mapping){base, size, live};
    return 0;
}

void nds_mapping_kill(struct nds_mapping *m)
{
    if (nds_readable(m))
        *m->live = NDS_LIVE_KILLED;
}

void nds_unmap(struct nds_mapping *m)
{
    if (m->base && !nds_forked(m))
        munmap(m->base, m->size);
    m->base = NULL;
}

void nds_drop_pages(const struct nds_mapping *m)
{
    if (nds_readable(m))
        (void)madvise(m->base, m->size, MADV_DONTNEED); /* refused where pages are locked: then they stay */
}

void nds_mapping_free(struct nds_mapping *m)
{
    nds_mapping_kill(m);
    nds_unmap(m);
    if (m->live)
        live_free(m->live);
    m->live = NULL;
}
