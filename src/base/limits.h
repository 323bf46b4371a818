/*
 * Every limit on hostile input, each with its reason. A limit that is passed is a LINNET_LIMIT or
 * LINNET_FORMAT error that names the thing, never a crash.
 */
#ifndef LINNET_BASE_LIMITS_H
#define LINNET_BASE_LIMITS_H

enum {
    /* GGUF dims per tensor: the format's own maximum. */
    LIMIT_GGUF_DIMS = 4,
    /* Nested metadata arrays: no known file nests; recursion must be bounded. */
    LIMIT_GGUF_ARRAY_DEPTH = 4,
    /* Bytes of a tensor name: the format says 64; some converters exceed it. */
    LIMIT_GGUF_TENSOR_NAME = 255,
    /* Bytes of a metadata key: the format's own maximum. */
    LIMIT_GGUF_KEY = 65535,
    /* Metadata keys: real files have fewer than 200; each key costs a table entry. */
    LIMIT_GGUF_KEYS = 1 << 16,
    /* Elements of a metadata array: the longest known, merges of a large vocabulary, have half a
     * million. */
    LIMIT_GGUF_ARRAY = 1 << 26,
    /* Tensors: 100 layers with 1,000 unmerged experts of three matrices are 300,000. */
    LIMIT_GGUF_TENSORS = 1 << 20,
    /* Alignment of tensor data: the format's default is 32; 64 KiB is the largest page in common
     * use. */
    LIMIT_GGUF_ALIGNMENT = 1 << 16,
    /* Files of a split model: the naming scheme has five digits. */
    LIMIT_GGUF_SHARDS = 99999,
    /* Layers: the deepest published model has 128; 1024 leaves room and bounds per-layer tables. */
    LIMIT_LAYERS = 1024,
    /* Vocabulary: the largest published is 262,400; token ids are int32 and tables are per
     * token. */
    LIMIT_VOCAB = 1 << 24,
    /* Merges of a byte-pair vocabulary: the longest published list has 514,906. */
    LIMIT_MERGES = 1 << 25,
    /* Bytes of one token's text: keeps length arithmetic in 32 bits and buffers small. */
    LIMIT_TOKEN_BYTES = 1 << 16,
    /* Bytes of text in one call to encode: offsets into it are 32 bits, its tokens are held in
     * memory. */
    LIMIT_TEXT_BYTES = 1 << 30,
    /* Worker threads: more than any CPU this runs on; bounds per-thread tables. */
    LIMIT_THREADS = 512,
    /* Experts of a mixture: Kimi K3 has 896. */
    LIMIT_EXPERTS = 4096,
    /* Query heads: the most published is 128. Rows of a batch times heads stay in 32 bits. */
    LIMIT_HEADS = 4096,
    /* Width of an activation: 64 times the widest known (Kimi K3's 33,792 x 64). Keeps products of
     * widths in 32 bits. */
    LIMIT_WIDTH = 1 << 24,
    /* Taps of a short convolution: published models have 3 or 4; a row of history is kept for
     * each. */
    LIMIT_CONV = 64,
    /* Rows of one batch: bounds the activation arena. */
    LIMIT_BATCH = 1 << 16,
};

#endif
