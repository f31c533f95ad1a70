/* The hot loops of the corpus. kernel.py builds and loads this file. Tests compare each loop with numpy, Python or
   `tokenizers`. All sizes are counts of elements. No function here reads or writes a file. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

/* ---- Random numbers: randomness.py ---- */

static inline i64 below(u64 word, i64 bound) { return (i64)((word >> 32) * (u64)bound >> 32); }

static inline double uniform(u64 word) { return (double)(word >> 32) * 0x1p-32; }

static u64 mixed(u64 word) {
    u64 z = word + 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

static i64 heads(u64 word, i64 tosses) {
    i64 count = 0;
    for (i64 left = tosses; left > 0; left -= 64, word = mixed(word))
        count += __builtin_popcountll(word >> (left < 64 ? 64 - left : 0));
    return count;
}

/* ---- Tokens: a memory of chunks; new chunks of ASCII are tokenized by WordPiece or byte pair encoding ---- */

enum { CASED, LOWER_CASE, BYTE_PAIRS };               /* how text becomes ids: two of WordPiece, and GPT-2's */
enum { LONGEST_WORD = 100, LONGEST_PIECE = 128 };

struct slot { u32 tag, number; };                     /* a slot of a hash table with open addressing; number 0: free */
struct chunk { i64 text, ids; i32 length, count; };   /* where its text and ids begin; count -1: ids not yet known */

struct tokenizer {
    u8 *entries;                 /* the texts of the vocabulary, one after the other */
    i64 *ends;                   /* where each text ends */
    struct slot *words;
    u64 words_mask;
    i64 longest;
    i32 unknown, how;
    struct slot *slots;          /* the memory of chunks */
    u64 slots_mask;
    struct chunk *chunks;
    i64 known, room;
    u8 *text;
    i64 text_used, text_room;
    i32 *ids;
    i64 ids_used, ids_room;
};

static const u64 WORD = 0xCBF29CE484222325, PRIME = 0x100000001B3;   /* FNV-1a: a hash can be extended byte by byte */

static inline u64 longer(u64 hash, u8 byte) { return (hash ^ byte) * PRIME; }

static inline u32 tag_of(u64 hash) { return (u32)(hash >> 32); }

static inline u64 place_of(u64 hash) { return hash ^ hash >> 29; }

static u64 hash_of(const u8 *text, i64 length) {
    u64 hash = (u64)length * 0x9E3779B97F4A7C15, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, (size_t)length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93;
    return (hash ^ hash >> 32) * 0x9E3779B97F4A7C15;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    free(t->entries), free(t->ends), free(t->words), free(t->slots), free(t->chunks), free(t->text), free(t->ids);
    free(t);
}

/* Make a tokenizer. Its vocabulary has `size` entries with one byte between them; entry i ends at ends[i] of `entries`.
   Returns NULL if memory is short. */
struct tokenizer *tokenizer_new(const u8 *entries, const i64 *ends, i64 size, i32 unknown, i32 how) {
    struct tokenizer *t = calloc(1, sizeof *t);
    u64 places = 1024;
    while (places < 4 * (u64)size) places *= 2;
    if (!t) return NULL;
    t->unknown = unknown, t->how = how;
    t->words_mask = places - 1;
    t->slots_mask = (1 << 16) - 1;
    t->entries = malloc((size_t)ends[size - 1] + 1);
    t->ends = malloc((size_t)size * sizeof *ends);
    t->words = calloc(places, sizeof *t->words);
    t->slots = calloc(t->slots_mask + 1, sizeof *t->slots);
    if (!t->entries || !t->ends || !t->words || !t->slots) return tokenizer_free(t), NULL;
    memcpy(t->entries, entries, (size_t)ends[size - 1]);
    memcpy(t->ends, ends, (size_t)size * sizeof *ends);
    for (i64 i = 0; i < size; i++) {
        i64 begin = i ? ends[i - 1] + 1 : 0, length = ends[i] - begin;
        u64 hash = WORD;
        for (i64 k = 0; k < length; k++) hash = longer(hash, entries[begin + k]);
        u64 at = place_of(hash);
        while (t->words[at & t->words_mask].number) at++;
        t->words[at & t->words_mask] = (struct slot){tag_of(hash), (u32)i + 1};
        if (length > t->longest) t->longest = length;
    }
    return t;
}

/* Return the id of the entry whose text is the first `prefix` bytes of "##" followed by `text`; -1 if there is none. */
static i64 find_word(const struct tokenizer *t, u64 hash, i64 prefix, const u8 *text, i64 length) {
    for (u64 at = place_of(hash);; at++) {
        struct slot slot = t->words[at & t->words_mask];
        if (!slot.number) return -1;
        i64 id = slot.number - 1, begin = id ? t->ends[id - 1] + 1 : 0;
        if (slot.tag == tag_of(hash) && t->ends[id] - begin == prefix + length &&
            !memcmp(t->entries + begin, "##", (size_t)prefix) &&
            !memcmp(t->entries + begin + prefix, text, (size_t)length))
            return id;
    }
}

static int grown(void **array, i64 *room, i64 needed, size_t width) {
    if (needed <= *room) return 1;
    i64 more = 2 * needed + 1024;
    void *moved = realloc(*array, (size_t)more * width);
    if (!moved) return 0;
    *array = moved, *room = more;
    return 1;
}

/* Append the ids of a word in its final case. `word` holds at most its first LONGEST_WORD bytes. We repeatedly take the
   longest entry that fits. If no entry fits at some place, the whole word is unknown. */
static void add_word(struct tokenizer *t, const u8 *word, i64 length) {
    i64 begin = t->ids_used;
    if (length > LONGEST_WORD) {
        t->ids[t->ids_used++] = t->unknown;
        return;
    }
    for (i64 at = 0; at < length;) {
        u64 hashes[LONGEST_WORD + 1], hash = WORD;
        i64 prefix = at ? 2 : 0, fits = length - at, id = -1;
        if (fits > t->longest - prefix) fits = t->longest - prefix;
        if (prefix) hash = longer(longer(hash, '#'), '#');
        for (i64 i = 0; i < fits; i++) hashes[i + 1] = hash = longer(hash, word[at + i]);
        for (; fits > 0 && id < 0; fits--) id = find_word(t, hashes[fits], prefix, word + at, fits);
        if (id < 0) {
            t->ids_used = begin;
            t->ids[t->ids_used++] = t->unknown;
            return;
        }
        t->ids[t->ids_used++] = (i32)id;
        at += fits + 1;
    }
}

/* Append the ids of a chunk of ASCII: drop control characters, end words at blanks, make each punctuation mark a word. */
static void add_ascii(struct tokenizer *t, const u8 *text, i64 length) {
    u8 word[LONGEST_WORD];
    i64 letters = 0;
    for (i64 i = 0; i < length; i++) {
        u8 c = text[i];
        int letter = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
        int blank = c == '\t' || c == '\n' || c == '\r' || c == ' ';
        if ((c < ' ' && !blank) || c == 127) continue;
        if (letter) {
            if (letters < LONGEST_WORD) word[letters] = t->how == LOWER_CASE && c >= 'A' && c <= 'Z' ? c + 32 : c;
            letters++;
            continue;
        }
        if (letters) add_word(t, word, letters);
        letters = 0;
        if (!blank) add_word(t, &c, 1);
    }
    if (letters) add_word(t, word, letters);
}

/* Return the id of the entry with this text; INT32_MAX if there is none. */
static i32 entry_of(const struct tokenizer *t, const u8 *text, i64 length) {
    u64 hash = WORD;
    if (length > t->longest) return INT32_MAX;
    for (i64 i = 0; i < length; i++) hash = longer(hash, text[i]);
    i64 id = find_word(t, hash, 0, text, length);
    return id < 0 ? INT32_MAX : (i32)id;
}

/* Append the ids of a piece by byte pair encoding: repeatedly join the two neighbours whose joint text is the entry with
   the lowest id, until no joint text is an entry. Returns 0 if the piece is too long (the time grows with its square). */
static int add_piece(struct tokenizer *t, const u8 *text, i64 length) {
    i32 whole = entry_of(t, text, length), joint[LONGEST_PIECE];    /* joint[i]: the entry of parts i and i + 1 */
    i64 begins[LONGEST_PIECE + 1], parts = length;                  /* part i is text[begins[i]..begins[i + 1]) */
    if (whole != INT32_MAX) {
        t->ids[t->ids_used++] = whole;
        return 1;
    }
    if (length > LONGEST_PIECE) return 0;
    for (i64 i = 0; i <= length; i++) begins[i] = i;
    for (i64 i = 0; i + 1 < length; i++) joint[i] = entry_of(t, text + i, 2);
    for (;;) {
        i64 best = 0;
        for (i64 i = 1; i + 1 < parts; i++)
            if (joint[i] < joint[best]) best = i;
        if (parts < 2 || joint[best] == INT32_MAX) break;
        parts--;
        memmove(begins + best + 1, begins + best + 2, (size_t)(parts - best) * sizeof *begins);
        memmove(joint + best, joint + best + 1, (size_t)(parts - best - 1) * sizeof *joint);
        for (i64 i = best ? best - 1 : 0; i <= best && i + 1 < parts; i++)
            joint[i] = entry_of(t, text + begins[i], begins[i + 2] - begins[i]);
    }
    for (i64 i = 0; i < parts; i++) t->ids[t->ids_used++] = entry_of(t, text + begins[i], begins[i + 1] - begins[i]);
    return 1;
}

/* Return how many bytes the white space character (of Unicode) at `text` has; 0 if another character is there. */
static inline i64 blank(const u8 *text, const u8 *end) {
    if (*text < 128) return *text == ' ' || (*text >= '\t' && *text <= '\r');
    if (*text == 0xC2) return end - text > 1 && (text[1] == 0x85 || text[1] == 0xA0) ? 2 : 0;
    if (end - text < 3) return 0;
    u32 c = (u32)text[0] << 16 | (u32)text[1] << 8 | text[2];
    return c == 0xE19A80 || (c >= 0xE28080 && c <= 0xE2808A) || c == 0xE280A8 || c == 0xE280A9 || c == 0xE280AF ||
           c == 0xE2819F || c == 0xE38080 ? 3 : 0;
}

/* Return where GPT-2's pattern ends a piece. The piece begins with a character that is not blank, or with a space and
   then such a character. */
static i64 piece_end(const u8 *text, i64 begin, i64 length) {
    enum { LETTER = 1, DIGIT, SIGN };
    i64 at = begin + (text[begin] == ' ');
    if (text[begin] == '\'' && length - begin > 1) {
        u8 next = text[begin + 1], after = length - begin > 2 ? text[begin + 2] : 0;
        if (next == 's' || next == 't' || next == 'm' || next == 'd') return begin + 2;
        if ((next == 'r' && after == 'e') || (next == 'v' && after == 'e') || (next == 'l' && after == 'l')) return begin + 3;
    }
    for (int kind = 0; at < length; at++) {
        u8 c = text[at];
        int its = (c | 32) >= 'a' && (c | 32) <= 'z' ? LETTER : c >= '0' && c <= '9' ? DIGIT : SIGN;
        if (kind && its != kind) break;
        kind = its;
    }
    return at;
}

/* Append the ids of a chunk of ASCII, which is blanks and then other characters. Returns 0 if a piece of it is too long.
   The last blank is a piece of its own or, if it is a space, the beginning of the next piece. */
static int add_pieces(struct tokenizer *t, const u8 *text, i64 length) {
    i64 at = 0;
    while (at < length && blank(text + at, text + length)) at++;
    if (at < length && at) at--;
    if (at && !add_piece(t, text, at)) return 0;
    if (at < length && text[at] != ' ' && blank(text + at, text + length)) add_piece(t, text + at++, 1);
    while (at < length) {
        i64 begin = at;
        at = piece_end(text, begin, length);
        if (!add_piece(t, text + begin, at - begin)) return 0;
    }
    return 1;
}

static int rehash(struct tokenizer *t) {
    u64 mask = 4 * t->slots_mask + 3;
    struct slot *slots = calloc(mask + 1, sizeof *slots);
    if (!slots) return 0;
    for (i64 i = 0; i < t->known; i++) {
        u64 hash = hash_of(t->text + t->chunks[i].text, t->chunks[i].length), at = hash;
        while (slots[at & mask].number) at++;
        slots[at & mask] = (struct slot){tag_of(hash), (u32)i + 1};
    }
    free(t->slots);
    t->slots = slots, t->slots_mask = mask;
    return 1;
}

/* Return the number of a chunk, and remember the chunk if it is new. Returns -1 if memory is short. */
static i64 number_of(struct tokenizer *t, const u8 *text, i64 length) {
    u64 hash = hash_of(text, length), at = hash;
    for (;; at++) {
        struct slot slot = t->slots[at & t->slots_mask];
        if (!slot.number) break;
        const struct chunk *known = t->chunks + slot.number - 1;
        if (slot.tag == tag_of(hash) && known->length == length &&
            !memcmp(t->text + known->text, text, (size_t)length))
            return slot.number - 1;
    }
    if (!grown((void **)&t->chunks, &t->room, t->known + 1, sizeof *t->chunks) ||
        !grown((void **)&t->text, &t->text_room, t->text_used + length, 1) ||
        !grown((void **)&t->ids, &t->ids_room, t->ids_used + length, sizeof *t->ids))
        return -1;
    i64 number = t->known++, first = t->ids_used;
    int ascii = 1;
    for (i64 i = 0; i < length; i++) ascii &= text[i] < 128;
    if (ascii && t->how != BYTE_PAIRS) add_ascii(t, text, length);
    if (ascii && t->how == BYTE_PAIRS && !add_pieces(t, text, length)) ascii = 0, t->ids_used = first;
    t->chunks[number] = (struct chunk){t->text_used, first, (i32)length, ascii ? (i32)(t->ids_used - first) : -1};
    memcpy(t->text + t->text_used, text, (size_t)length);
    t->text_used += length;
    t->slots[at & t->slots_mask] = (struct slot){tag_of(hash), (u32)number + 1};
    if (2 * (u64)t->known > t->slots_mask && !rehash(t)) return -1;
    return number;
}

/* Split texts into chunks: at spaces for WordPiece, before blanks for byte pairs. Text i is text[begins[i]..ends[i]).
   Fills `numbers` with the numbers of the chunks, and after[i] with the count of chunks up to the end of text i. Returns
   the count of all chunks, or -1 if memory is short. */
i64 tokenizer_scan(struct tokenizer *t, const u8 *text, const i64 *begins, const i64 *ends, i64 texts, i32 *numbers,
                   i64 *after) {
    i64 count = 0;
    for (i64 i = 0; i < texts; i++) {
        for (i64 at = begins[i]; at < ends[i];) {
            i64 begin = at, end;
            if (t->how == BYTE_PAIRS) {
                for (i64 width; at < ends[i] && (width = blank(text + at, text + ends[i]));) at += width;
                while (at < ends[i] && !blank(text + at, text + ends[i])) at++;
                end = at;
            } else {
                while (at < ends[i] && text[at] != ' ') at++;
                end = at++;
                if (end == begin) continue;
            }
            i64 number = number_of(t, text + begin, end - begin);
            if (number < 0) return -1;
            numbers[count++] = (i32)number;
        }
        after[i] = count;
    }
    return count;
}

/* Return the number of the next chunk, from number `from` on, whose ids are not known, or -1. `*text` and `*length` get
   its text. */
i64 tokenizer_unknown(const struct tokenizer *t, i64 from, const u8 **text, i64 *length) {
    for (i64 i = from; i < t->known; i++)
        if (t->chunks[i].count < 0) {
            *text = t->text + t->chunks[i].text, *length = t->chunks[i].length;
            return i;
        }
    return -1;
}

/* Store the ids of a chunk. Returns 0 if memory is short. */
int tokenizer_teach(struct tokenizer *t, i64 number, const i32 *ids, i64 count) {
    if (!grown((void **)&t->ids, &t->ids_room, t->ids_used + count, sizeof *t->ids)) return 0;
    memcpy(t->ids + t->ids_used, ids, (size_t)count * sizeof *ids);
    t->chunks[number].ids = t->ids_used, t->chunks[number].count = (i32)count;
    t->ids_used += count;
    return 1;
}

/* Count the tokens of each text, from `numbers` and `after` of a scan. Returns the count of all tokens. */
i64 tokenizer_lengths(const struct tokenizer *t, const i32 *numbers, const i64 *after, i64 texts, i64 *lengths) {
    i64 all = 0;
    for (i64 i = 0, at = 0; i < texts; i++) {
        lengths[i] = 0;
        for (; at < after[i]; at++) lengths[i] += t->chunks[numbers[at]].count;
        all += lengths[i];
    }
    return all;
}

void tokenizer_ids(const struct tokenizer *t, const i32 *numbers, i64 count, i32 *ids) {
    for (i64 i = 0; i < count; i++) {
        const struct chunk *chunk = t->chunks + numbers[i];
        for (i32 k = 0; k < chunk->count; k++) *ids++ = t->ids[chunk->ids + k];
    }
}

/* Return how many bytes the memory of chunks takes. */
i64 tokenizer_bytes(const struct tokenizer *t) {
    return (i64)(t->slots_mask + 1) * (i64)sizeof *t->slots + t->room * (i64)sizeof *t->chunks + t->text_room +
           t->ids_room * (i64)sizeof *t->ids;
}

/* ---- Sentences: call blingfire's own function for each paragraph; without it, each paragraph is a sentence ---- */

typedef int (*splitter)(const char *text, int length, char *out, int room);

/* Split articles into sentences. The articles follow one another in `text`; article i ends at of_article[i], and
   paragraphs end with \n. Sentence j becomes out[begins[j]..ends[j]), and counts[i] is the count of article i's
   sentences. There is room for `most` sentences and `room` bytes. Returns the count of sentences, or -1 if they do not
   fit. */
i64 split(splitter splits, const u8 *text, const i64 *of_article, i64 articles, u8 *out, i64 room, i64 *begins, i64 *ends,
          i64 most, i64 *counts) {
    i64 found = 0, used = 0;
    for (i64 i = 0, at = 0; i < articles; i++) {
        i64 before = found;
        while (at < of_article[i]) {
            const u8 *stop = memchr(text + at, '\n', (size_t)(of_article[i] - at));
            i64 length = stop ? stop - (text + at) : of_article[i] - at;
            if (length) {
                if (used + 2 * length > room) return -1;
                i64 made = 0;
                if (splits) made = splits((const char *)text + at, (int)length, (char *)out + used, (int)(2 * length));
                if (made > 2 * length) made = 0;
                if (made > 0 && !out[used + made - 1]) made--;     /* the splitter counts a final NUL */
                if (made <= 0) memcpy(out + used, text + at, (size_t)(made = length));
                for (i64 from = used; from <= used + made;) {
                    const u8 *border = memchr(out + from, '\n', (size_t)(used + made - from));
                    i64 end = border ? border - out : used + made;
                    if (end > from) {
                        if (found == most) return -1;
                        begins[found] = from, ends[found++] = end;
                    }
                    from = end + 1;
                }
                used += made;
            }
            at += length + 1;
        }
        at = of_article[i];
        counts[i] = found - before;
    }
    return found;
}

/* ---- Examples ---- */

static inline i64 at_least(i64 value, i64 least) { return value < least ? least : value; }

/* Form the pairs of one copy from the documents [head, tail) of `count`, in their order. Sentence s begins at token
   begins[s], document d at sentence bounds[d]. `of_document` has 2 random words for each of these documents,
   `of_sentence` 5 for each of their sentences. Returns the count of pairs, at most one for each sentence. */
i64 pairs(i64 head, i64 tail, i64 count, const i64 *begins, const i64 *bounds, i64 limit, double short_sequences, const u64 *of_document,
          const u64 *of_sentence, i64 *a, i64 *a_length, i64 *b, i64 *b_length, u8 *random_next) {
    i64 made = 0;
    for (i64 d = head; d < tail; d++) {
        i64 target = limit, end = bounds[d + 1];
        const u64 *drawn = of_document + 2 * (d - head);
        if (uniform(drawn[0]) < short_sequences) target = 2 + below(drawn[1], limit - 1);
        for (i64 first = bounds[d]; first < end;) {
            const u64 *words = of_sentence + 5 * (first - bounds[head]);
            i64 last = first + 1;
            while (last < end && begins[last] < begins[first] + target) last++;
            if (count == 1 && last - first == 1 && last < end) last++;
            i64 size = last - first;
            int random = (size == 1 || !(words[1] >> 63)) && count > 1;
            i64 middle = first + 1 + (size > 1 ? below(words[0], size - 1) : 0);
            i64 length = begins[middle] - begins[first], b_first = middle, b_last = last;
            if (random) {                /* a run from another document, as long as there is room */
                i64 other = below(words[2], count - 1);
                if (other >= d) other++;
                b_first = bounds[other] + below(words[3], bounds[other + 1] - bounds[other]);
                i64 wanted = begins[b_first] + at_least(target - length, 1);
                b_last = b_first + 1;
                while (b_last < bounds[other + 1] && begins[b_last] < wanted) b_last++;
            }
            i64 b_whole = begins[b_last] - begins[b_first];
            if (b_whole > 0) {           /* the longer segment loses tokens, at the front or the back at random */
                i64 excess = at_least(length + b_whole - limit, 0), apart = length - b_whole;
                i64 to_equal = apart < 0 ? -apart : apart;
                if (to_equal > excess) to_equal = excess;
                i64 from_a = (apart > 0 ? to_equal : 0) + (excess - to_equal) / 2, from_b = excess - from_a;
                a[made] = begins[first] + heads(words[4], from_a);
                b[made] = begins[b_first] + heads(~words[4] * 0xD6E8FEB86659FD93, from_b);
                a_length[made] = length - from_a;
                b_length[made] = b_whole - from_b;
                random_next[made++] = (u8)random;
            }
            first = random ? middle : last;
        }
    }
    return made;
}

static void copy(i32 *ids, const void *tokens, i64 width, i64 from, i64 count) {
    const u16 *narrow = (const u16 *)tokens + from;
    const u32 *wide = (const u32 *)tokens + from;
    if (width == 2)
        for (i64 i = 0; i < count; i++) ids[i] = narrow[i];
    else
        for (i64 i = 0; i < count; i++) ids[i] = (i32)wide[i];
}

/* Make rows of finished examples in the last six arrays, which need not be initialized. masked_of[n] of n tokens are
   masked, `drawn` has two random words for each of `predictions`, and `pool` is room for 2 x `sequence` positions. */
void filled(i64 rows, i64 sequence, i64 predictions, const void *tokens, i64 width, const i64 *a, const i64 *a_length,
            const i64 *b, const i64 *b_length, const u8 *random_next, const i32 *masked_of, const u64 *drawn,
            const i32 *words, i64 words_count, i32 cls, i32 sep, i32 mask, u16 *pool, i32 *input_ids, u8 *input_mask,
            u8 *segment_ids, i32 *positions, i32 *labels, u8 *next_sentence) {
    u16 *order = pool + sequence;
    for (i64 i = 0; i < sequence; i++) order[i] = (u16)i;
    for (i64 row = 0; row < rows; row++, drawn += 2 * predictions) {
        i32 *ids = input_ids + row * sequence, *place = positions + row * predictions, *label = labels + row * predictions;
        i64 a_end = 1 + a_length[row], b_end = a_end + 1 + b_length[row];
        memset(ids + b_end, 0, (size_t)(sequence - b_end) * sizeof *ids);
        ids[0] = cls, ids[a_end] = ids[b_end] = sep;
        copy(ids + 1, tokens, width, a[row], a_length[row]);
        copy(ids + a_end + 1, tokens, width, b[row], b_length[row]);
        memset(input_mask + row * sequence, 1, (size_t)b_end + 1);
        memset(input_mask + row * sequence + b_end + 1, 0, (size_t)(sequence - b_end - 1));
        memset(segment_ids + row * sequence, 0, (size_t)sequence);
        memset(segment_ids + row * sequence + a_end + 1, 1, (size_t)(b_end - a_end));
        next_sentence[row] = random_next[row];

        i64 candidates = a_length[row] + b_length[row], count = masked_of[candidates];
        u64 chosen[512];                 /* a bit for each of 32,768 positions */
        memset(chosen, 0, (size_t)(candidates / 64 + 1) * sizeof *chosen);
        memcpy(pool, order, (size_t)candidates * sizeof *pool);
        for (i64 k = 0; k < count; k++) {
            i64 j = k + below(drawn[2 * k], candidates - k);
            u16 taken = pool[j];
            pool[j] = pool[k];
            chosen[taken / 64] |= (u64)1 << taken % 64;
        }
        i64 k = 0;
        for (i64 word = 0; k < count; word++)
            for (u64 bits = chosen[word]; bits; bits &= bits - 1, k++) {
                i64 at = 64 * word + __builtin_ctzll(bits);
                at += 1 + (at >= a_length[row]);
                place[k] = (i32)at;
                label[k] = ids[at];
                u64 chance = drawn[2 * k + 1];
                if (uniform(chance) < 0.8)
                    ids[at] = mask;
                else if (uniform(chance) >= 0.9)
                    ids[at] = words[below(chance << 32, words_count)];
            }
        memset(place + count, 0, (size_t)(predictions - count) * sizeof *place);
        memset(label + count, 0, (size_t)(predictions - count) * sizeof *label);
    }
}

/* HDF5's shuffle: write the first bytes of all elements, then the second bytes, and so on. */
void planes(const u8 *data, i64 count, i64 width, u8 *out) {
    if (width == 4)
        for (i64 i = 0; i < count; i++)
            for (i64 k = 0; k < 4; k++) out[k * count + i] = data[4 * i + k];
    else
        for (i64 k = 0; k < width; k++)
            for (i64 i = 0; i < count; i++) out[k * count + i] = data[width * i + k];
}

/* ---- Verification ---- */

enum { ROWS, TOKENS, MASKED, BY_MASK, UNCHANGED, RANDOM_NEXT, UNKNOWN, CHANGED };
enum { SPECIAL = 1, RANDOM_WORD = 2 };

/* Return how many of `most` bytes are `value` before the first other byte. */
static i64 run(const u8 *bytes, u8 value, i64 most) {
    u64 eight = 0x0101010101010101 * value, word;
    i64 at = 0;
    for (; at + 8 <= most; at += 8) {
        memcpy(&word, bytes + at, 8);
        if (word != eight) break;
    }
    while (at < most && bytes[at] == value) at++;
    return at;
}

/* What is wrong with a row, in the order of FAULTS in verification.py. */
enum { NOTHING, FORM, OUTSIDE, MASKS, PROMISES, LABEL };

/* Return the first rule of the layout that a row breaks, or NOTHING. With `masked_of`, the stricter rules of our own
   shards count too. */
static int fault(i64 sequence, i64 predictions, i64 entries, i32 cls, i32 sep, i32 mask, const u8 *kinds,
                 const i32 *masked_of, const i32 *ids, const u8 *input_mask, const u8 *segments, const i32 *positions,
                 const i32 *labels) {
    i64 length = run(input_mask, 1, sequence), first = run(segments, 0, sequence), masked = 0, specials = 0;
    i64 second = run(segments + first, 1, sequence - first);
    int outside = 0, padded = 0, promised = 1;
    if (length < 5 || second < 2 || first < 3 || first + second != length) return FORM;
    if (run(input_mask + length, 0, sequence - length) + length < sequence) return FORM;
    if (run(segments + length, 0, sequence - length) + length < sequence) return FORM;
    for (i64 i = 0; i < length; i++) outside |= (u32)ids[i] >= (u32)entries;
    for (i64 i = length; i < sequence; i++) padded |= ids[i];           /* [PAD] is 0 */
    if (outside) return OUTSIDE;
    if (padded || ids[0] != cls || ids[length - 1] != sep || ids[first - 1] != sep) return FORM;
    while (masked < predictions && labels[masked]) masked++;
    for (i64 k = masked; k < predictions; k++)
        if (labels[k] | positions[k]) return MASKS;
    if (!masked) return MASKS;
    if (masked_of)
        for (i64 i = 0; i < length; i++)
            specials += (ids[i] == cls) | (ids[i] == sep) | (ids[i] == mask) | !ids[i];
    for (i64 k = 0; k < masked; k++) {
        i64 at = positions[k];
        if ((u32)labels[k] >= (u32)entries) return OUTSIDE;
        if (at <= (k ? positions[k - 1] : 0) || at >= length - 1 || at == first - 1) return MASKS;
        i32 now = ids[at];
        specials += (kinds[labels[k]] == SPECIAL) - (kinds[now] == SPECIAL);
        promised &= now == mask || now == labels[k] || kinds[now] == RANDOM_WORD;
    }
    return !masked_of || (promised && specials == 3 && masked == masked_of[length - 3]) ? NOTHING : PROMISES;
}

/* Check rows up to the first with a fault, and return this fault. Adds to `counts`, in the order of COUNTED in
   verification.py, what the rows before it hold. `kinds` says for each entry of the vocabulary whether it is special, or
   may be a random word. */
int checked(i64 rows, i64 sequence, i64 predictions, i64 entries, i32 cls, i32 sep, i32 mask, i32 unknown, const u8 *kinds,
            const i32 *masked_of, const i32 *ids, const u8 *input_mask, const u8 *segments, const i32 *positions,
            const i32 *labels, const u8 *next, i64 *counts) {
    for (i64 row = 0; row < rows; row++) {
        int wrong = next[row] > 1 ? LABEL : fault(sequence, predictions, entries, cls, sep, mask, kinds, masked_of, ids,
                                                  input_mask, segments, positions, labels);
        if (wrong) return wrong;
        counts[TOKENS] += run(input_mask, 1, sequence);
        for (i64 k = 0; k < predictions && labels[k]; k++) {
            i32 now = ids[positions[k]];
            counts[MASKED]++;
            counts[BY_MASK] += now == mask;
            counts[UNCHANGED] += now == labels[k];
            counts[UNKNOWN] += labels[k] == unknown;
            counts[CHANGED] += now != mask && now != labels[k];
        }
        counts[ROWS]++, counts[RANDOM_NEXT] += next[row];
        ids += sequence, input_mask += sequence, segments += sequence;
        positions += predictions, labels += predictions;
    }
    return NOTHING;
}
