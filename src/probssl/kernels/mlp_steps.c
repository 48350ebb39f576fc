/* Losses and gradients of K small models, one after the other, each from its own rows, noise and weights.
 *
 * A model is an encoder of linear layers with ReLU between them, trained on pairs (x, x~) of a table's rows and their
 * masked and noisy copies by one of the losses below. Everything that belongs to one model fits the second-level cache,
 * so that its step costs little more than its arithmetic. The mathematics is that of probssl.objectives and
 * probssl.energies, with gradients written out; tests hold the two equal. Follows pair_sums.c in one translation unit.
 *
 * Matrices are stored by rows, each padded with zeros to whole vectors.
 */

enum { INFO_NCE, NCE, SNL, SIMCLR, SPECTRAL, FISHER };
enum { EUCLIDEAN, COSINE };
enum { MOST_LAYERS = 8, TERMS = 3 };

static inline int padded(int size) { return (size + WIDTH - 1) / WIDTH * WIDTH; }

/* A region of memory, handed out in pieces that start on whole vectors. */
typedef struct { float *next; } region;

static float *piece(region *space, size_t floats) {
    float *start = space->next;
    space->next += (floats + WIDTH - 1) / WIDTH * WIDTH;
    return start;
}

typedef struct {
    int layers, sizes[MOST_LAYERS + 1], widths[MOST_LAYERS + 1]; /* widths are padded sizes */
    const float *biases[MOST_LAYERS];
    float *weights[MOST_LAYERS], *transposed[MOST_LAYERS]; /* [out][in] and [in][out] */
    float *of_weights[MOST_LAYERS], *of_biases[MOST_LAYERS];
} network;

/* out[r] = in[r] . matrix (+ bias), for matrix [inner][width], TILE rows at a time; negatives become 0 on request. */
static void multiply(int rows, int inner, int width, const float *in, int in_width, const float *matrix,
                     const float *bias, int bias_size, int rectify, float *out) {
    const int vectors = width / WIDTH;
    float padded_bias[width];
    memset(padded_bias, 0, sizeof padded_bias);
    if (bias) memcpy(padded_bias, bias, sizeof(float) * bias_size);
    for (int r = 0; r < rows; r += TILE) {
        const int here = rows - r < TILE ? rows - r : TILE;
        const float *own[TILE];
        for (int k = 0; k < TILE; k++) own[k] = in + (size_t)(r + (k < here ? k : 0)) * in_width;
        int v = 0;
        for (; v + 1 < vectors; v += 2) { /* two vectors of outputs at a time, so that a number read is used twice */
            vec a[TILE], b[TILE];
            for (int k = 0; k < TILE; k++) {
                memcpy(&a[k], padded_bias + v * WIDTH, sizeof(vec));
                memcpy(&b[k], padded_bias + (v + 1) * WIDTH, sizeof(vec));
            }
            for (int i = 0; i < inner; i++) {
                const vec *columns = (const vec *)(matrix + (size_t)i * width + v * WIDTH);
                const vec one = columns[0], other = columns[1];
                for (int k = 0; k < TILE; k++) {
                    a[k] += own[k][i] * one;
                    b[k] += own[k][i] * other;
                }
            }
            for (int k = 0; k < here; k++) {
                vec *place = (vec *)(out + (size_t)(r + k) * width + v * WIDTH);
                place[0] = rectify ? (vec)((a[k] > all(0)) & (ivec)a[k]) : a[k];
                place[1] = rectify ? (vec)((b[k] > all(0)) & (ivec)b[k]) : b[k];
            }
        }
        if (v < vectors) {
            vec a[TILE];
            for (int k = 0; k < TILE; k++) memcpy(&a[k], padded_bias + v * WIDTH, sizeof(vec));
            for (int i = 0; i < inner; i++) {
                const vec column = *(const vec *)(matrix + (size_t)i * width + v * WIDTH);
                for (int k = 0; k < TILE; k++) a[k] += own[k][i] * column;
            }
            for (int k = 0; k < here; k++)
                *(vec *)(out + (size_t)(r + k) * width + v * WIDTH) =
                    rectify ? (vec)((a[k] > all(0)) & (ivec)a[k]) : a[k];
        }
    }
}

/* into[o] += sum_r slope[r][o] * in[r], the gradient of a weight matrix [out][width of in]: TILE outputs at a time. */
static void add_outer(int rows, int out, const float *slope, int slope_width, const float *in, int in_width, float *into) {
    const int vectors = in_width / WIDTH;
    for (int o = 0; o < out; o += TILE) { /* columns of slope beyond its padding are read too, and not used */
        const int here = out - o < TILE ? out - o : TILE;
        int v = 0;
        for (; v + 1 < vectors; v += 2) {
            vec a[TILE], b[TILE];
            for (int k = 0; k < TILE; k++) a[k] = b[k] = all(0);
            for (int r = 0; r < rows; r++) {
                const vec *own = (const vec *)(in + (size_t)r * in_width + v * WIDTH);
                const float *s = slope + (size_t)r * slope_width + o;
                const vec one = own[0], other = own[1];
                for (int k = 0; k < TILE; k++) {
                    a[k] += s[k] * one;
                    b[k] += s[k] * other;
                }
            }
            for (int k = 0; k < here; k++) {
                vec *place = (vec *)(into + (size_t)(o + k) * in_width + v * WIDTH);
                place[0] += a[k];
                place[1] += b[k];
            }
        }
        if (v < vectors) {
            vec a[TILE];
            for (int k = 0; k < TILE; k++) a[k] = all(0);
            for (int r = 0; r < rows; r++) {
                const vec one = *(const vec *)(in + (size_t)r * in_width + v * WIDTH);
                const float *s = slope + (size_t)r * slope_width + o;
                for (int k = 0; k < TILE; k++) a[k] += s[k] * one;
            }
            for (int k = 0; k < here; k++) *(vec *)(into + (size_t)(o + k) * in_width + v * WIDTH) += a[k];
        }
    }
}

static void zero_where_off(size_t floats, float *values, const float *gate) {
    for (size_t k = 0; k < floats; k += WIDTH) {
        vec *value = (vec *)(values + k);
        *value = (vec)((*(const vec *)(gate + k) > all(0)) & (ivec)*value);
    }
}

/* Unpacks flat parameters, torch's order: weight [out][in] and bias of each layer. */
static void unpack(network *net, const float *flat, region *space) {
    for (int l = 0; l < net->layers; l++) {
        const int in = net->sizes[l], out = net->sizes[l + 1], wide_in = net->widths[l], wide_out = net->widths[l + 1];
        net->weights[l] = piece(space, (size_t)out * wide_in);
        net->transposed[l] = piece(space, (size_t)in * wide_out);
        net->of_weights[l] = piece(space, (size_t)out * wide_in);
        net->of_biases[l] = piece(space, wide_out);
        memset(net->weights[l], 0, sizeof(float) * out * wide_in);
        memset(net->transposed[l], 0, sizeof(float) * in * wide_out);
        memset(net->of_weights[l], 0, sizeof(float) * out * wide_in);
        memset(net->of_biases[l], 0, sizeof(float) * wide_out);
        for (int o = 0; o < out; o++) {
            memcpy(net->weights[l] + (size_t)o * wide_in, flat + (size_t)o * in, sizeof(float) * in);
            for (int i = 0; i < in; i++) net->transposed[l][(size_t)i * wide_out + o] = flat[(size_t)o * in + i];
        }
        net->biases[l] = flat + (size_t)out * in;
        flat += (size_t)out * (in + 1);
    }
}

static void pack_gradient(const network *net, float *flat) {
    for (int l = 0; l < net->layers; l++) {
        const int in = net->sizes[l], out = net->sizes[l + 1];
        for (int o = 0; o < out; o++, flat += in)
            memcpy(flat, net->of_weights[l] + (size_t)o * net->widths[l], sizeof(float) * in);
        memcpy(flat, net->of_biases[l], sizeof(float) * out);
        flat += out;
    }
}

/* activations[0] are the inputs; fills the others. */
static void forward(const network *net, int rows, float **activations) {
    for (int l = 0; l < net->layers; l++)
        multiply(rows, net->sizes[l], net->widths[l + 1], activations[l], net->widths[l], net->transposed[l],
                 net->biases[l], net->sizes[l + 1], l + 1 < net->layers, activations[l + 1]);
}

/* Adds the gradients that `slope` [rows][last width] has in weights and biases. Hidden layers are closed where `gates` are
 * 0 (the activations themselves, or for tangents those of the point they are taken at). */
static void backward(network *net, int rows, float **activations, float **gates, const float *slope, int biases,
                     float *space_a, float *space_b) {
    const float *own = slope;
    for (int l = net->layers - 1; l >= 0; l--) {
        const int out = net->sizes[l + 1], wide = net->widths[l + 1];
        add_outer(rows, out, own, wide, activations[l], net->widths[l], net->of_weights[l]);
        if (biases)
            for (int r = 0; r < rows; r++)
                for (int o = 0; o < wide; o++) net->of_biases[l][o] += own[(size_t)r * wide + o];
        if (l == 0) break;
        float *next = own == space_a ? space_b : space_a;
        multiply(rows, out, net->widths[l], own, wide, net->weights[l], 0, 0, 0, next);
        zero_where_off((size_t)rows * net->widths[l], next, gates[l]);
        own = next;
    }
}

/* The bias network of NCE and SNL: linear, batch normalisation, ReLU, linear to one number. */
typedef struct {
    int in, hidden;
    const float *inner, *inner_bias, *gain, *shift, *outer, *outer_bias;
    float *normal, *deviation, *value; /* [n][hidden], [hidden], [n][hidden] before ReLU */
} bias_network;

static void bias_forward(bias_network *net, int n, const float *z, int z_width, float *log_z, region *space) {
    const int h = net->hidden;
    net->normal = piece(space, (size_t)n * h);
    net->value = piece(space, (size_t)n * h);
    net->deviation = piece(space, h);
    double mean[h], square[h];
    memset(mean, 0, sizeof mean);
    memset(square, 0, sizeof square);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < h; k++) {
            vec sums = all(0);
            float sum = net->inner_bias[k];
            int i = 0;
            for (; i + WIDTH <= net->in; i += WIDTH) {
                vec w;
                memcpy(&w, net->inner + (size_t)k * net->in + i, sizeof w);
                sums += w * *(const vec *)(z + (size_t)r * z_width + i);
            }
            for (; i < net->in; i++) sum += net->inner[(size_t)k * net->in + i] * z[(size_t)r * z_width + i];
            net->normal[(size_t)r * h + k] = sum + total(sums);
            mean[k] += net->normal[(size_t)r * h + k];
        }
    for (int k = 0; k < h; k++) mean[k] /= n;
    for (int r = 0; r < n; r++)
        for (int k = 0; k < h; k++) {
            const double away = net->normal[(size_t)r * h + k] - mean[k];
            square[k] += away * away;
        }
    for (int k = 0; k < h; k++) net->deviation[k] = (float)sqrt(square[k] / n + 1e-5);
    for (int r = 0; r < n; r++) {
        float sum = net->outer_bias[0];
        for (int k = 0; k < h; k++) {
            float *normal = net->normal + (size_t)r * h + k, *value = net->value + (size_t)r * h + k;
            *normal = (float)(*normal - mean[k]) / net->deviation[k];
            *value = *normal * net->gain[k] + net->shift[k];
            if (*value > 0) sum += *value * net->outer[k];
        }
        log_z[r] = sum;
    }
}

/* Adds to of_z what `slope` [n] has in the embeddings, and writes the flat gradient, in torch's order of parameters. */
static void bias_backward(const bias_network *net, int n, const float *z, int z_width, const float *slope, float *of_z,
                          float *flat) {
    const int h = net->hidden, in = net->in;
    float *of_inner = flat, *of_inner_bias = of_inner + (size_t)h * in, *of_gain = of_inner_bias + h;
    float *of_shift = of_gain + h, *of_outer = of_shift + h, *of_outer_bias = of_outer + h;
    memset(flat, 0, sizeof(float) * ((size_t)h * in + 4 * h + 1));
    for (int r = 0; r < n; r++) {
        of_outer_bias[0] += slope[r];
        for (int k = 0; k < h; k++) {
            const float value = net->value[(size_t)r * h + k];
            if (value <= 0) continue;
            of_outer[k] += slope[r] * value;
            of_gain[k] += slope[r] * net->outer[k] * net->normal[(size_t)r * h + k];
            of_shift[k] += slope[r] * net->outer[k];
        }
    }
    for (int r = 0; r < n; r++)
        for (int k = 0; k < h; k++) {
            const float open = net->value[(size_t)r * h + k] > 0 ? slope[r] * net->outer[k] : 0;
            const float mean = (of_shift[k] + net->normal[(size_t)r * h + k] * of_gain[k]) / n;
            const float own = (open - mean) * net->gain[k] / net->deviation[k];
            of_inner_bias[k] += own;
            const float *w = net->inner + (size_t)k * in, *x = z + (size_t)r * z_width;
            float *dx = of_z + (size_t)r * z_width, *dw = of_inner + (size_t)k * in;
            for (int i = 0; i < in; i++) {
                dw[i] += own * x[i];
                dx[i] += own * w[i];
            }
        }
}

/* 1/|z|, smooth at zero as in energies.unit. */
static float inverse_norm(int size, const float *z) {
    float square = 1.4210854715202004e-14f;
#pragma omp simd reduction(+ : square)
    for (int i = 0; i < size; i++) square += z[i] * z[i];
    return 1 / sqrtf(square);
}

/* Factors of the logits of rows of z: left [n][p] for the first side, right [n][p] for the second. */
typedef struct {
    int energy, size, wide, p; /* wide: width of rows of z */
    float length;              /* of `left` on the sphere */
    float *centre;
} factoring;

static void make_factors(const factoring *f, int n, const float *a, const float *b, float *left, float *right) {
    const int m = f->size, p = f->p;
    for (int r = 0; r < n; r++, a += f->wide, b += f->wide, left += p, right += p) {
        if (f->energy == COSINE) {
            const float s = inverse_norm(m, a) * f->length, t = inverse_norm(m, b);
            for (int i = 0; i < m; i++) {
                left[i] = a[i] * s;
                right[i] = b[i] * t;
            }
        } else {
            float square_a = 0, square_b = 0;
#pragma omp simd reduction(+ : square_a, square_b)
            for (int i = 0; i < m; i++) {
                left[i] = a[i] - f->centre[i];
                right[i] = b[i] - f->centre[i];
                square_a += left[i] * left[i];
                square_b += right[i] * right[i];
            }
            left[m] = -0.5f * square_a;
            left[m + 1] = right[m] = 1;
            right[m + 1] = -0.5f * square_b;
        }
    }
}

/* Adds to the slopes in a and b what those in their factors come to; `left` and `right` are the factors themselves. */
static void pull_factors(const factoring *f, int n, const float *a, const float *b, const float *left,
                         const float *right, const float *of_left, const float *of_right, float *of_a, float *of_b) {
    const int m = f->size, p = f->p, w = f->wide;
    for (int r = 0; r < n; r++, a += w, b += w, left += p, right += p, of_left += p, of_right += p, of_a += w, of_b += w) {
        if (f->energy == COSINE) {
            const float s = inverse_norm(m, a), t = inverse_norm(m, b), per_length = 1 / f->length;
            float along_a = 0, along_b = 0;
#pragma omp simd reduction(+ : along_a, along_b)
            for (int i = 0; i < m; i++) {
                along_a += of_left[i] * left[i] * per_length;
                along_b += of_right[i] * right[i];
            }
            for (int i = 0; i < m; i++) {
                of_a[i] += s * f->length * (of_left[i] - left[i] * per_length * along_a);
                of_b[i] += t * (of_right[i] - right[i] * along_b);
            }
        } else
            for (int i = 0; i < m; i++) {
                of_a[i] += of_left[i] - of_left[m] * left[i];
                of_b[i] += of_right[i] - of_right[m + 1] * right[i];
            }
    }
}

static void column_mean(int rows, int size, int wide, const float *z, float *mean) {
    memset(mean, 0, sizeof(float) * size);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < size; i++) mean[i] += z[(size_t)r * wide + i];
    for (int i = 0; i < size; i++) mean[i] /= rows;
}

static float product(int size, const float *a, const float *b) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

static void add_scaled(int size, float scale, const float *from, float *to) {
    for (int i = 0; i < size; i++) to[i] += scale * from[i];
}

typedef struct {
    int objective, energy, rows, embedding, wide; /* wide: padded embedding */
    float temperature, prior;                     /* prior: share of positives of NCE */
    bias_network *bias;
    float *of_bias;
} problem;

/* The contrastive losses: terms, and slopes of_z [2n][wide] in the embeddings z of x (first n rows) and x~. */
static void contrast(const problem *task, const float *z, float *of_z, double *terms, region space) {
    const int n = task->rows, m = task->embedding, wide = task->wide, own = task->objective;
    const int both = own == SIMCLR, biased = own == NCE || own == SNL;
    const int rows = both ? 2 * n : n, cosine = task->energy == COSINE;
    const float *a = z, *b = both ? z : z + (size_t)n * wide;
    float centre[m];
    if (!cosine) column_mean(rows, m, wide, b, centre);
    const float length = own == SPECTRAL ? task->temperature : 1 / task->temperature;
    const float offset = cosine && own != SPECTRAL ? -1 / task->temperature : 0;
    const factoring f = {task->energy, m, wide, cosine ? m : m + 2, length, centre};
    const int p = f.p, q = p + biased; /* one more factor carries the bias */
    float *left = piece(&space, (size_t)rows * p), *right = piece(&space, (size_t)rows * p);
    float *of_left = piece(&space, (size_t)rows * q), *of_right = piece(&space, (size_t)rows * q);
    make_factors(&f, rows, a, b, left, right);
    float *one = left, *other = right, *log_z = 0;
    const float shift = own == NCE ? logf(task->prior / (1 - task->prior)) : 0;
    if (biased) {
        log_z = piece(&space, n);
        bias_forward(task->bias, n, b, wide, log_z, &space);
        one = piece(&space, (size_t)n * q);
        other = piece(&space, (size_t)n * q);
        for (int r = 0; r < n; r++) {
            memcpy(one + (size_t)r * q, left + (size_t)r * p, sizeof(float) * p);
            memcpy(other + (size_t)r * q, right + (size_t)r * p, sizeof(float) * p);
            one[(size_t)r * q + p] = 1;
            other[(size_t)r * q + p] = shift + offset - log_z[r];
        }
    }
    vec *scratch = (vec *)piece(&space, pair_space(rows, q) * WIDTH);
    const double pairs = (double)rows * (rows - 1), each = 1.0 / n;
    terms[0] = terms[1] = terms[2] = 0;
    if (own == INFO_NCE) /* every x~ picks its x */
        terms[1] = one_model(LOG_SUM_EXP, 1, n, n, q, other, one, 0, of_right, of_left, 0, scratch);
    else {
        const int kind = own == NCE ? SOFTPLUS : own == SNL ? EXPONENTIAL : own == SPECTRAL ? SQUARE : LOG_SUM_EXP_OTHERS;
        terms[1] = one_model(kind, 1, rows, rows, q, one, other, 0, of_left, of_right, 0, scratch);
    }
    const double weight = own == INFO_NCE || both ? 1.0 / rows : own == NCE ? (1 - task->prior) / pairs : 1 / pairs;
    terms[1] *= weight;
    for (size_t k = 0; k < (size_t)rows * q; k++) {
        of_left[k] *= (float)weight;
        of_right[k] *= (float)weight;
    }
    for (int r = 0; r < n; r++) { /* the related pairs */
        const int partner = both ? r + n : r;
        const float *l = one + (size_t)r * q, *s = other + (size_t)partner * q;
        const int size = own == SNL ? p : q; /* the bias of SNL is a term of its own */
        const float logit = product(size, l, s);
        float slope = (float)-each;
        if (own == NCE) {
            const float t = expf(-fabsf(logit));
            terms[0] += (logit < 0 ? -logit : 0) + log1pf(t);
            slope = (float)(-task->prior * each) * (logit < 0 ? 1 : t) / (1 + t);
        } else
            terms[0] -= logit;
        if (own == SPECTRAL) slope *= 2;
        add_scaled(size, slope, s, of_left + (size_t)r * q);
        add_scaled(size, slope, l, of_right + (size_t)partner * q);
    }
    terms[0] *= each;
    if (own == NCE) terms[0] *= task->prior;
    if (own == SPECTRAL) terms[0] *= 2;
    if (own == INFO_NCE || own == SIMCLR || own == SNL) terms[0] -= offset;
    if (own == INFO_NCE || own == SIMCLR) terms[1] += offset;
    if (biased) {
        float *slopes = piece(&space, n);
        for (int r = 0; r < n; r++) {
            slopes[r] = (own == SNL ? (float)each : 0) - of_right[(size_t)r * q + p];
            if (own == SNL) terms[2] += each * log_z[r];
        }
        if (own == SNL) {
            const double normaliser = terms[1] - 1;
            terms[1] = terms[2];
            terms[2] = normaliser;
        }
        for (int r = 0; r < n; r++) { /* close the gap that the extra factor left */
            memmove(of_left + (size_t)r * p, of_left + (size_t)r * q, sizeof(float) * p);
            memmove(of_right + (size_t)r * p, of_right + (size_t)r * q, sizeof(float) * p);
        }
        bias_backward(task->bias, n, b, wide, slopes, of_z + (size_t)n * wide, task->of_bias);
    }
    pull_factors(&f, rows, a, b, left, right, of_left, of_right, of_z, both ? of_z : of_z + (size_t)n * wide);
}

/* Fisher: with v the slope of the energy in psi(x) and u = score + J'v, the gradient of |u|^2 is 2 d<v, Ju> for u fixed. */
static double fisher(const problem *task, network *net, float **activations, const float *score, float *of_z,
                     region space) {
    const int n = task->rows, m = task->embedding, wide = task->wide, layers = net->layers, in = net->widths[0];
    const float *z = activations[layers], per_length = 1 / task->temperature;
    float *pull = piece(&space, (size_t)n * wide);
    memset(pull, 0, sizeof(float) * n * wide);
    for (int r = 0; r < n; r++) {
        const float *a = z + (size_t)r * wide, *b = z + (size_t)(n + r) * wide;
        float *v = pull + (size_t)r * wide;
        if (task->energy == EUCLIDEAN)
            for (int i = 0; i < m; i++) v[i] = a[i] - b[i];
        else {
            const float s = inverse_norm(m, a), t = inverse_norm(m, b), c = product(m, a, b) * s * t;
            for (int i = 0; i < m; i++) v[i] = -s * per_length * (b[i] * t - a[i] * s * c);
        }
    }
    size_t most = 0;
    for (int l = 0; l <= layers; l++) most = net->widths[l] > (int)most ? (size_t)net->widths[l] : most;
    float *space_a = piece(&space, most * 2 * n), *space_b = piece(&space, most * 2 * n);
    const float *own = pull; /* back to the inputs */
    float *residual = piece(&space, (size_t)n * in);
    for (int l = layers - 1; l >= 0; l--) {
        float *next = l == 0 ? residual : own == space_a ? space_b : space_a;
        multiply(n, net->sizes[l + 1], net->widths[l], own, net->widths[l + 1], net->weights[l], 0, 0, 0, next);
        if (l) zero_where_off((size_t)n * net->widths[l], next, activations[l]);
        own = next;
    }
    double value = 0;
    for (int r = 0; r < n; r++) {
        float *u = residual + (size_t)r * in;
        for (int i = 0; i < in; i++) u[i] += score[(size_t)r * in + i];
        value += product(in, u, u);
    }
    float *tangents[MOST_LAYERS + 1] = {residual}; /* and forward along them */
    for (int l = 0; l < layers; l++) {
        tangents[l + 1] = piece(&space, (size_t)n * net->widths[l + 1]);
        multiply(n, net->sizes[l], net->widths[l + 1], tangents[l], net->widths[l], net->transposed[l], 0, 0, 0, tangents[l + 1]);
        if (l + 1 < layers) zero_where_off((size_t)n * net->widths[l + 1], tangents[l + 1], activations[l + 1]);
    }
    const float twice = 2.0f / n;
    for (int r = 0; r < n; r++) {
        const float *a = z + (size_t)r * wide, *b = z + (size_t)(n + r) * wide, *q = tangents[layers] + (size_t)r * wide;
        float *of_a = of_z + (size_t)r * wide, *of_b = of_z + (size_t)(n + r) * wide;
        if (task->energy == EUCLIDEAN)
            for (int i = 0; i < m; i++) {
                of_a[i] = twice * q[i];
                of_b[i] = -twice * q[i];
            }
        else {
            const float s = inverse_norm(m, a), t = inverse_norm(m, b), c = product(m, a, b) * s * t;
            const float along_a = product(m, q, a) * s, along_b = product(m, q, b) * t, k = twice * s * per_length;
            for (int i = 0; i < m; i++) {
                const float ua = a[i] * s, ub = b[i] * t;
                of_a[i] = k * s * ((along_b - 3 * along_a * c) * ua + c * q[i] + along_a * ub);
                of_b[i] = -k * t * (q[i] - ub * along_b - along_a * (ua - ub * c));
            }
        }
    }
    for (size_t k = 0; k < (size_t)n * wide; k++) pull[k] *= twice;
    backward(net, n, tangents, activations, pull, 0, space_a, space_b);
    return value / n;
}

/* grad_x log p(x~ | x) of mask-and-noise, feature by feature: [n][wide], with zeros where the rows are padded. */
static void score_of(int n, int d, int wide, const float *x, const float *x_aug, const float *keep, const float *noise,
                     float *score) {
    float odds[wide] __attribute__((aligned(64))), precision[wide] __attribute__((aligned(64)));
    for (int i = 0; i < wide; i++) {
        odds[i] = i < d ? (log1pf(-keep[i]) - logf(keep[i])) * LOG2_E : 0;
        precision[i] = i < d ? 1 / (noise[i] * noise[i]) : 0;
    }
    for (size_t r = 0; r < (size_t)n * wide; r += wide)
        for (int i = 0; i < wide; i += WIDTH) {
            const vec at = *(const vec *)(x + r + i), aug = *(const vec *)(x_aug + r + i), sure = *(vec *)(precision + i);
            vec masked = *(vec *)(odds + i) + at * (at - 2 * aug) * (0.5f * LOG2_E) * sure;
            masked = choose(masked > all(127), all(127), masked);
            *(vec *)(score + r + i) = (aug - at) * sure / (1 + exp2_of(masked));
        }
}

/* What a model of these sizes takes, in floats. */
size_t mlp_step_space(int n, int layers, const int *sizes, int bias_hidden) {
    size_t widest = 0, weights = 0, activations = 0;
    for (int l = 0; l <= layers; l++) {
        const size_t width = padded(sizes[l]);
        widest = width > widest ? width : widest;
        activations += 2 * n * width;
        if (l < layers) weights += (size_t)padded(sizes[l + 1]) * width * 3 + padded(sizes[l + 1]) + 4 * WIDTH;
    }
    const size_t m = sizes[layers], q = m + 3;
    const size_t pairs = (size_t)2 * n * q * 6 + pair_space(2 * n, q) * WIDTH + (size_t)n * (2 * bias_hidden + 4);
    return weights + 2 * activations + 2 * n * 5 * widest + pairs + 64 * WIDTH;
}

/* One step of K models: their terms [K][3] and gradients. Rows of the table are chosen by index [K][n], masked where chance
 * is not below keep [K][d], and get noise of scale [K][d]; noise and chance [streams][n][d] are those of the model's stream.
 * Returns 0, or 1 where memory is short. */
int mlp_steps(int models, int n, int layers, const int *sizes, int objective, int energy, const float *temperature,
              float prior, int bias_hidden, const float *table, const int64_t *index, const int64_t *stream,
              const float *noise, const float *chance, const float *keep, const float *scale, const float *parameters,
              const float *bias_parameters, float *of_parameters, float *of_bias_parameters, double *terms) {
    const int d = sizes[0], m = sizes[layers], h = bias_hidden;
    const size_t bias_size = h ? (size_t)h * m + 4 * h + 1 : 0;
    size_t size = 0;
    for (int l = 0; l < layers; l++) size += (size_t)sizes[l + 1] * (sizes[l] + 1);
    float *memory = aligned_alloc(sizeof(vec), sizeof(float) * ((mlp_step_space(n, layers, sizes, h) + WIDTH - 1) / WIDTH * WIDTH));
    if (!memory) return 1;
    for (int k = 0; k < models; k++) {
        region space = {memory};
        network net = {.layers = layers};
        for (int l = 0; l <= layers; l++) {
            net.sizes[l] = sizes[l];
            net.widths[l] = padded(sizes[l]);
        }
        unpack(&net, parameters + size * k, &space);
        float *activations[MOST_LAYERS + 1];
        for (int l = 0; l <= layers; l++) activations[l] = piece(&space, (size_t)2 * n * net.widths[l]);
        float *x = activations[0], *x_aug = x + (size_t)n * net.widths[0];
        memset(x, 0, sizeof(float) * 2 * n * net.widths[0]);
        for (int r = 0; r < n; r++) {
            const float *row = table + (size_t)index[(size_t)k * n + r] * d;
            const size_t at = ((size_t)stream[k] * n + r) * d, place = (size_t)r * net.widths[0];
            for (int i = 0; i < d; i++) {
                x[place + i] = row[i];
                x_aug[place + i] = (chance[at + i] < keep[k * d + i] ? row[i] : 0) + noise[at + i] * scale[k * d + i];
            }
        }
        forward(&net, 2 * n, activations);
        float *of_z = piece(&space, (size_t)2 * n * net.widths[layers]);
        memset(of_z, 0, sizeof(float) * 2 * n * net.widths[layers]);
        bias_network bias = {.in = m, .hidden = h};
        if (h) {
            const float *own = bias_parameters + bias_size * k;
            bias.inner = own;
            bias.inner_bias = own + (size_t)h * m;
            bias.gain = bias.inner_bias + h;
            bias.shift = bias.gain + h;
            bias.outer = bias.shift + h;
            bias.outer_bias = bias.outer + h;
        }
        const problem task = {objective, energy, n, m, net.widths[layers], temperature[k], prior, &bias, of_bias_parameters + bias_size * k};
        double *own_terms = terms + (size_t)TERMS * k;
        if (objective == FISHER) {
            float *score = piece(&space, (size_t)n * net.widths[0]);
            score_of(n, d, net.widths[0], x, x_aug, keep + k * d, scale + k * d, score);
            own_terms[0] = fisher(&task, &net, activations, score, of_z, space);
        } else
            contrast(&task, activations[layers], of_z, own_terms, space);
        size_t widest = 0;
        for (int l = 0; l <= layers; l++) widest = net.widths[l] > (int)widest ? (size_t)net.widths[l] : widest;
        float *space_a = piece(&space, widest * 2 * n), *space_b = piece(&space, widest * 2 * n);
        backward(&net, 2 * n, activations, activations, of_z, 1, space_a, space_b);
        pack_gradient(&net, of_parameters + size * k);
    }
    free(memory);
    return 0;
}
