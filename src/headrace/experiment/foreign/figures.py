"""How people name figures about several runs, in many languages: means, sums, spreads, comparisons."""

from __future__ import annotations

import functools
import re

from headrace.experiment.foreign import names

# fmt: off
#: How people name a line that sums up others, or compares them, also in other languages. With other words beside
#: them, those of ``WEAK`` may be levels.
WEAK = frozenset({
    "min", "max", "minimum", "maximum", "all", "count", "overall", "summary", "sd", "std", "cv", "rsd", "n",
    "diff", "difference", "ratio", "speedup", "change", "delta", "δ", "gain", "improvement", "p_value", "p",
    "range", "var", "media", "suma", "variance", "harmonic", "geometric", "geo",
    "speed_up", "rms", "mode", "skew", "skewness", "kurtosis", "spread", "varianz", "abweichung", "hmean", "gmean",
    "t_stat", "t_value", "z_score", "effect", "effect_size", "conf_interval", "abs_diff", "rel_diff",
    "best", "worst", "winner", "ci", "se", "sem", "std_error", "standard_error", "t_test", "p_val", "significance",
})
SUMMARY = frozenset(names.words(each) for each in (
    "average", "averages", "avg", "mean", "means", "total", "totals", "subtotal", "sum", "median", "stddev",
    "stdev", "geomean", "durchschnitt", "mittelwert", "mittel", "mittelw", "summe", "gesamt", "gesamtsumme",
    "gesamtergebnis", "ergebnis", "zwischensumme", "standardabweichung", "stabw", "moyenne", "médiane",
    "mediane", "somme", "promedio", "mediana", "totale", "média", "soma", "gemiddelde", "totaal", "som",
    "standaardafwijking", "średnia", "srednia", "razem", "suma", "průměr", "prumer", "součet", "celkem",
    "átlag", "összesen", "keskiarvo", "summa", "yhteensä", "medelvärde", "genomsnitt", "gennemsnit",
    "gjennomsnitt", "sammanlagt", "ortalama", "toplam", "среднее", "итого", "сумма", "всего", "медиана",
    "середнє", "разом", "μέσος", "σύνολο", "ממוצע", "متوسط", "المجموع", "ecart_type", "écart_type",
    "desviación", "desvio", "deviazione", "std_dev", "st_dev", "standard_deviation", "std_deviation",
    "geo_mean", "geometric_mean", "harmonic_mean", "grand_total", "trung_bình", "rata_rata",
    "priemer", "spolu", "povprečje", "skupaj", "vidējais", "kopā", "vidurkis", "iš viso", "keskmine", "kokku",
    "mitjana", "medie", "prosjek", "ukupno", "prosek", "общо", "средно", "всього", "усього", "сярэдняе",
    "μέσος όρος", "μέση τιμή", "میانگین", "مجموع", "ortalama değer", "औसत", "कुल", "ค่าเฉลี่ย", "รวม",
    "tổng", "tổng cộng", "trung bình", "i alt", "סה\"כ", "סך הכל", "jumlah", "purata", "meðaltal", "samtals",
    "batez besteko", "mesatarja", "wastani", "kabuuan", "średnio", "łącznie", "σ", "ø", "μ", "x̄", "percentile",
    "quartile", "aggregate", "rollup", "desv", "desv estándar", "desv est", "desv típica", "desviación típica",
    "desvest", "media aritmética", "écart type", "moy", "moy.", "ø gesamt", "odchylenie standardowe", "odch stand",
    "směrodatná odchylka", "standaarddeviatie", "standardavvikelse", "keskihajonta", "szórás", "standart sapma",
    "std sapma", "ст откл", "стандартное отклонение", "ско", "deviazione standard", "dev standard",
    "desvio padrão", "schnitt", "im schnitt", "totales", "somma", "gemiddeld", "итог", "sub_total", "stdabw",
    "std_abw", "cov", "iqm", "all_runs", "trimmed_mean", "harm_mean", "hmean", "coeff_var",
    "variationskoeffizient", "mad", "best_of", "mediaan", "mediaani", "medián", "medyan", "vs",
    "gesamtdurchschnitt", "overall_mean", "run_mean",
))
# fmt: on
_CJK = re.compile(r"(平均|合計|总计|合计|總計|小計|小计|総計|均值|中位|標準偏差|标准差|평균|합계)")
_TAIL = re.compile(
    r"\d{2}_?(confidence|conf)\w*|(p|pct|q)_?\d{1,2}(_?\d)?|\d{1,2}(_\d)?(th)?_(percentile|pct|quantile|ci|confidence_interval)|t_test_p|std_error"
)


@functools.lru_cache(4096)
def names_a_summary(cell: str) -> bool:
    """Whether a cell names a figure about other runs, and no level."""
    # ``AVERAGE(xfs)``; ``p = 0.001``, ``n=6``.
    whole = names.words(re.sub(r"\s*=.*", "", cell))
    cell = cell.replace("(", " (")
    if (
        whole in SUMMARY
        or whole in WEAK
        or cell.strip() in ("∑", "∅")
        or _CJK.search(cell)
        or _TAIL.fullmatch(whole)
    ):
        return True
    if re.fullmatch(r"(?:best|worst|mean|avg|average|median) of \d+", cell.strip(), re.IGNORECASE):
        return True
    tokens = [names.words(token) for token in cell.split()]
    return len(tokens) > 1 and (
        tokens[0] in SUMMARY or tokens[-1] in SUMMARY or "_".join(tokens[:2]) in SUMMARY
    )
