/* Sums over all pairs of two small sets of vectors, with their gradients: what probssl.objectives.pairwise
 * computes with matrix products, for blocks so small that everything stays in the first-level cache.
 *
 * S_ij = <left_i, right_j>. Rows are worked through eight at a time: their logits are made, turned into derivatives in
 * place, and multiplied into both gradients while they are at hand. Built on demand for the machine it runs on
 * (kernels/build.py); without a compiler nothing is lost but time.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Floats a vector: no more than the machine has, for gcc takes wider ones apart number by number. */
#if defined __AVX512F__
#define VARIANT "AVX-512"
#define WIDTH 16
#elif defined __AVX2__ && defined __FMA__
#define VARIANT "AVX2"
#define WIDTH 8
#elif defined __AVX__
#define VARIANT "AVX"
#define WIDTH 8
#elif defined __SSE2__
#define VARIANT "SSE"
#define WIDTH 4
#elif defined __ARM_NEON
#define VARIANT "NEON"
#define WIDTH 4
#else
#error "the kernels know no vectors of this processor"
#endif

/* Rows at a time: two sums for each, and what goes into them, fill the registers, of which there are 32 or 16. */
#if defined __AVX512F__ || defined __aarch64__
#define TILE 8
#else
#define TILE 6
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));

enum { LOG_SUM_EXP, LOG_SUM_EXP_OTHERS, EXPONENTIAL, SOFTPLUS, SQUARE, HINGE, CROSS_ENTROPY };

/* A number that multiplies vectors. SSE cannot load one number into all places of a register, so it is stored in all. */
#if WIDTH == 4 && defined __SSE2__
typedef vec factor;
#else
typedef float factor;
#endif

static const float LOG2_E = 1.4426950408889634f;
static const float LN_2 = 0.6931471805599453f;
static const float LINEAR_BEYOND = 30.0f; /* the exponential continues as its tangent above it */

static inline vec all(float x) { return (vec){0} + x; }
static inline vec choose(ivec where, vec yes, vec no) { return (vec)((where & (ivec)yes) | (~where & (ivec)no)); }
static inline vec larger(vec a, vec b) { return choose(a > b, a, b); }
static inline float total(vec a) {
    float sum = 0;
    for (int k = 0; k < WIDTH; k++) sum += a[k];
    return sum;
}
static inline float largest(vec a) {
    float top = a[0];
    for (int k = 1; k < WIDTH; k++) top = a[k] > top ? a[k] : top;
    return top;
}

/* 2^x for x < 128, to 2e-7 of its value; below 2^-126 it is zero. */
static inline vec exp2_of(vec x) {
    const vec magic = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    ivec gone = x < all(-126.0f);
    vec shifted = x + magic;
    vec f = x - (shifted - magic); /* in [-1/2, 1/2] */
    ivec whole = (ivec)shifted - (ivec)magic;
    vec p = all(1.546973202e-04f);
    p = p * f + 1.340043217e-03f;
    p = p * f + 9.618025603e-03f;
    p = p * f + 5.550327214e-02f;
    p = p * f + 2.402265121e-01f;
    p = p * f + 6.931472067e-01f;
    p = p * f + 1.000000000e+00f;
    vec value = (vec)((ivec)p + (whole << 23));
    return (vec)(~gone & (ivec)value);
}

/* log(1 + t) for t in [0, 1], to 3e-7 of its value: t times a polynomial. */
static inline vec log1p_of(vec t) {
    vec p = all(-3.256378479e-03f);
    p = p * t + 1.990716095e-02f;
    p = p * t + -5.706420080e-02f;
    p = p * t + 1.061426469e-01f;
    p = p * t + -1.531186310e-01f;
    p = p * t + 1.967811726e-01f;
    p = p * t + -2.495455887e-01f;
    p = p * t + 3.333000404e-01f;
    p = p * t + -4.999990399e-01f;
    p = p * t + 9.999999954e-01f;
    return t * p;
}

/* One row of logits [m] becomes its derivatives; returns its part of the sum, and what to scale the derivatives by.
 * `place` is the row's own column, the positive of the cross-entropy. */
static double finish_row(int kind, vec *row, int vectors, int place, const float *extra, float *scale, float *share) {
    *scale = 1.0f;
    if (kind == LOG_SUM_EXP || kind == LOG_SUM_EXP_OTHERS || kind == CROSS_ENTROPY) { /* logits in units of log 2 */
        const float own = kind == CROSS_ENTROPY ? ((float *)row)[place] : 0;
        vec tops = row[0];
        for (int v = 1; v < vectors; v++) tops = larger(row[v], tops);
        float top = largest(tops), more = 0;
        if (extra && *extra * LOG2_E > top) top = *extra * LOG2_E;
        vec sums = all(0);
        for (int v = 0; v < vectors; v++) sums += row[v] = exp2_of(row[v] - top);
        if (extra) more = exp2f(*extra * LOG2_E - top);
        float sum = total(sums) + more;
        *scale = 1 / sum;
        if (extra) *share = more * *scale;
        if (kind == CROSS_ENTROPY) ((float *)row)[place] -= sum;
        return ((double)top - own + log2f(sum)) * (double)LN_2;
    }
    vec sums = all(0);
    if (kind == EXPONENTIAL) {
        const vec limit = all(LINEAR_BEYOND * LOG2_E);
        for (int v = 0; v < vectors; v++) {
            ivec over = row[v] > limit;
            vec excess = (vec)(over & (ivec)(row[v] - limit));
            row[v] = exp2_of(choose(over, limit, row[v]));
            sums += row[v] + row[v] * excess * LN_2;
        }
    } else if (kind == SOFTPLUS) {
        for (int v = 0; v < vectors; v++) {
            vec s = row[v];
            ivec up = s > all(0);
            vec t = exp2_of(choose(up, -s, s) * LOG2_E);
            sums += (vec)(up & (ivec)s) + log1p_of(t);
            row[v] = choose(up, all(1), t) / (1 + t);
        }
    } else if (kind == SQUARE) {
        for (int v = 0; v < vectors; v++) {
            sums += row[v] * row[v];
            row[v] += row[v];
        }
    } else {
        for (int v = 0; v < vectors; v++) {
            ivec up = row[v] > all(0);
            sums += (vec)(up & (ivec)row[v]);
            row[v] = (vec)(up & (ivec)all(1));
        }
    }
    return (double)total(sums);
}

/* One model: left [n, p], right [m, p], extra [n] or null. Gradients, where `train`: of_left [n, p], of_right [m, p]. */
static double one_model(int kind, int train, int n, int m, int p, const float *left, const float *right,
                        const float *extra, float *of_left, float *of_right, float *of_extra, vec *space) {
    const int vectors = 2 * ((m + 2 * WIDTH - 1) / (2 * WIDTH));
    const int base_two = kind != SOFTPLUS && kind != SQUARE && kind != HINGE;
    vec *columns = space;                        /* right, transposed: [p][vectors] */
    vec *slopes = columns + (size_t)p * vectors; /* gradient of right, transposed: [p][vectors] */
    vec *logits = slopes + (size_t)p * vectors;  /* [TILE][vectors] */
    factor *own = (factor *)(logits + (size_t)TILE * vectors); /* rows of left: [p][TILE] */
    const float never = kind == SQUARE ? 0.0f : kind == HINGE ? -1.0f : -INFINITY;
    const float unit = base_two ? LOG2_E : 1.0f;
    memset(space, 0, sizeof(vec) * ((size_t)2 * p * vectors));
    for (int j = 0; j < m; j++)
        for (int q = 0; q < p; q++) ((float *)(columns + (size_t)q * vectors))[j] = right[(size_t)j * p + q];
    double sum = 0;
    for (int i = 0; i < n; i += TILE) {
        const int here = n - i < TILE ? n - i : TILE;
        for (int q = 0; q < p; q++)
            for (int r = 0; r < TILE; r++)
                own[q * TILE + r] = (factor){0} + (r < here ? left[(size_t)(i + r) * p + q] * unit : 0);
        for (int v = 0; v < vectors; v += 2) {
            vec a[TILE], b[TILE];
            for (int r = 0; r < TILE; r++) a[r] = b[r] = all(0);
            for (int q = 0; q < p; q++) {
                const vec c = columns[(size_t)q * vectors + v], d = columns[(size_t)q * vectors + v + 1];
                for (int r = 0; r < TILE; r++) {
                    a[r] += own[q * TILE + r] * c;
                    b[r] += own[q * TILE + r] * d;
                }
            }
            for (int r = 0; r < TILE; r++) {
                logits[(size_t)r * vectors + v] = a[r];
                logits[(size_t)r * vectors + v + 1] = b[r];
            }
        }
        float scale[TILE] = {0};
        for (int r = 0; r < here; r++) {
            float *row = (float *)(logits + (size_t)r * vectors), share = 0;
            for (int j = m; j < vectors * WIDTH; j++) row[j] = never;
            if (kind != LOG_SUM_EXP && kind != CROSS_ENTROPY && i + r < m) row[i + r] = never;
            sum += finish_row(kind, logits + (size_t)r * vectors, vectors, i + r, extra ? extra + i + r : 0, scale + r, &share);
            if (train && extra) of_extra[i + r] = share;
        }
        if (!train) continue;
        for (int r = here; r < TILE; r++) memset(logits + (size_t)r * vectors, 0, sizeof(vec) * vectors);
        for (int q = 0; q < p; q += 2) {
            const int next = q + 1 < p ? q + 1 : q;
            vec a[TILE], b[TILE];
            for (int r = 0; r < TILE; r++) a[r] = b[r] = all(0);
            for (int v = 0; v < vectors; v++) {
                const vec c = columns[(size_t)q * vectors + v], d = columns[(size_t)next * vectors + v];
                for (int r = 0; r < TILE; r++) {
                    const vec weight = logits[(size_t)r * vectors + v];
                    a[r] += weight * c;
                    b[r] += weight * d;
                }
            }
            for (int r = 0; r < here; r++) {
                of_left[(size_t)(i + r) * p + q] = total(a[r]) * scale[r];
                of_left[(size_t)(i + r) * p + next] = total(b[r]) * scale[r];
            }
        }
        for (int q = 0; q < p; q++)
            for (int r = 0; r < TILE; r++) own[q * TILE + r] *= scale[r] / unit;
        for (int v = 0; v < vectors; v += 2) {
            vec a[TILE], b[TILE];
            for (int r = 0; r < TILE; r++) {
                a[r] = logits[(size_t)r * vectors + v];
                b[r] = logits[(size_t)r * vectors + v + 1];
            }
            for (int q = 0; q < p; q++) {
                vec c = slopes[(size_t)q * vectors + v], d = slopes[(size_t)q * vectors + v + 1];
                for (int r = 0; r < TILE; r++) {
                    c += own[q * TILE + r] * a[r];
                    d += own[q * TILE + r] * b[r];
                }
                slopes[(size_t)q * vectors + v] = c;
                slopes[(size_t)q * vectors + v + 1] = d;
            }
        }
    }
    if (train)
        for (int q = 0; q < p; q++)
            for (int j = 0; j < m; j++) of_right[(size_t)j * p + q] = ((float *)(slopes + (size_t)q * vectors))[j];
    return sum;
}

/* Vectors of working memory that one_model takes for m columns of p factors. */
static size_t pair_space(size_t m, size_t p) {
    const size_t vectors = 2 * ((m + 2 * WIDTH - 1) / (2 * WIDTH));
    return 2 * p * vectors + TILE * (vectors + p);
}

const char *kernel_variant(void) { return VARIANT; }

/* The sums of K models, each with its gradients. Returns 0, or 1 where memory is short. */
int pair_sums(int kind, int train, int models, int n, int m, int p, const float *left, const float *right,
              const float *extra, double *sums, float *of_left, float *of_right, float *of_extra) {
    vec *space = aligned_alloc(sizeof(vec), sizeof(vec) * pair_space(m, p));
    if (!space) return 1;
    for (int k = 0; k < models; k++) {
        const size_t l = (size_t)k * n * p, r = (size_t)k * m * p, e = (size_t)k * n;
        sums[k] = one_model(kind, train, n, m, p, left + l, right + r, extra ? extra + e : 0, of_left + l, of_right + r,
                            of_extra + e, space);
    }
    free(space);
    return 0;
}
