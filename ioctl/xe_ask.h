#pragma once
/*
 * All of an importer's part in one call, for a range of few objects: the question, the answer with the objects, import,
 * bind, last word. What is not plain is left to those who go step by step, with the answer at hand.
 */
#include "ask.h"
#include "object_reply.h"
#include "xe_open.h"

enum { XE_ASK_WORD = 16 };

struct xe_ask_open {
    /* First, so that one address is both. */
    struct ask ask;
    /* Of this vm_id, pat_own, pat_imported and the deadline are the caller's to fill in. */
    struct xe_open open;
    /* Addresses that nobody else uses as long as this lasts; of them [open.address, + taken) is used. */
    uint64_t ground;
    uint64_t ground_size;
    uint64_t taken;
    /* Bytes: of our pages; of what an import's address keeps the exporter's phase in; that the window may grow to. */
    uint64_t page_size;
    uint64_t phase_size;
    uint64_t reserve;
    uint64_t objects[REPLY_ROOM];
    uint8_t last_word[XE_ASK_WORD];
    /* Out: xe_open_extents() was called and has not left everything as it was. */
    uint32_t opened;
    /* Nanoseconds, of xe_open_extents(). */
    int64_t open_time;
};

/*
 * As ask_broker(), and with `opened` 0 that is all that has happened. With `opened` 1 the range is bound and the peer
 * knows, or it is an error as of xe_open_extents() with `submitted`; -EINTR then also when it took longer than the
 * patience of `ask`.
 */
int xe_ask_open(struct xe_device *device, struct xe_ask_open *what);
