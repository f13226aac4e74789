/* The squared distance of a sample from a component, in its standard deviations; of differences times scale. */
static inline double @name@_square(const double *x, int k, double scale)
{
    const double *mean = @name@_means + k * @NAME@_N_FEATURES;
    double squares = 0.0;
    int i, j;
@squares@
    (void)i;
    return squares;
}

/* The logarithms of weight times density of each component, into log_p. */
static inline void @name@_log_joint(const double *x, double *log_p)
{
    int k;
    for (k = 0; k < @NAME@_N_COMPONENTS; k++) {
        double square = @name@_square(x, k, 1.0);
        if (!(square < HUGE_VAL)) /* of a sample so far away that its parts are infinite too */
            square = @name@_square(x, k, 1e-200) * 1e200 * 1e200;
        log_p[k] = @name@_constants[k] - 0.5 * square;
    }
}

/* The largest of the logarithms. */
static inline double @name@_most(const double *log_p)
{
    double most = log_p[0];
    int k;
    for (k = 1; k < @NAME@_N_COMPONENTS; k++)
        if (log_p[k] > most)
            most = log_p[k];
    return most;
}

/* The log-likelihood of a sample. */
static inline double @name@_score(const double *x)
{
    double log_p[@NAME@_N_COMPONENTS], most, sum = 0.0;
    int k;
    @name@_log_joint(x, log_p);
    most = @name@_most(log_p);
    if (most == -HUGE_VAL)
        return most;
    for (k = 0; k < @NAME@_N_COMPONENTS; k++)
        sum += exp(log_p[k] - most);
    return most + log(sum) + @log_total@;
}

/* The probability of each component, into p of @NAME@_N_COMPONENTS numbers. A sample whose log-likelihood is
   -infinity has that of the nearest component. */
static inline void @name@_predict_proba(const double *x, double *p)
{
    double most, sum = 0.0, least = HUGE_VAL;
    int k;
    @name@_log_joint(x, p);
    most = @name@_most(p);
    if (most == -HUGE_VAL) {
        for (k = 0; k < @NAME@_N_COMPONENTS; k++) {
            p[k] = @name@_square(x, k, 1e-200);
            if (@name@_constants[k] > -HUGE_VAL && p[k] < least)
                least = p[k];
        }
        for (k = 0; k < @NAME@_N_COMPONENTS; k++)
            p[k] = p[k] > least ? -HUGE_VAL : @name@_constants[k];
        most = @name@_most(p);
    }
    for (k = 0; k < @NAME@_N_COMPONENTS; k++)
        sum += p[k] = exp(p[k] - most);
    for (k = 0; k < @NAME@_N_COMPONENTS; k++)
        p[k] /= sum;
}

/* The most probable component of a sample, counted from 0. */
static inline int @name@_predict(const double *x)
{
    double p[@NAME@_N_COMPONENTS];
    int k, best = 0;
    @name@_predict_proba(x, p);
    for (k = 1; k < @NAME@_N_COMPONENTS; k++)
        if (p[k] > p[best])
            best = k;
    return best;
}

#endif
