# The table of fleet.sh, from its CSV: medians over the rounds. In: rates, contenders, names ("key=name;"), skipped, whether
# contender and game process share a core, over whose CPU everybody's is shown, if anybody's, and what bundle-auto is judged by.

function median(list,    values, count, i, j, held) {
    count = split(list, values, " ")
    if (count == 0) return ""
    for (i = 2; i <= count; i++) {
        held = values[i] + 0
        for (j = i - 1; j >= 1 && values[j] + 0 > held; j--) values[j + 1] = values[j]
        values[j + 1] = held
    }
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}
function of(contender, rate, what) { return median(seen[contender, rate, what]) }
function us(value) { return value == "" ? "–" : sprintf("%.1f", value) }
function cpu(contender, rate,    own, game) {
    own = of(contender, rate, "gateway"); game = of(contender, rate, "game")
    if (contender == "nat") {
        # The kernel's work belongs to no process: it is what the core was busy for beyond the bare echo that it serves.
        own = of(contender, rate, "core")
        if (own == "") return "–"
        if (shared) {
            game = of("bare", rate, "core")
            if (game == "") return "– (" us(own) " with the echo)"
            own -= game
        }
    }
    if (own == "") return "–"
    if (game == "") return us(own)
    return us(own) " + " us(game) " = " us(own + game) ratio(own + game, rate)
}
function ratio(sum, rate,    base) {
    base = of(over, rate, "gateway") + of(over, rate, "game")
    return base > 0 ? sprintf(" (%.2f)", sum / base) : ""
}
# What a contender's quantile is above another's, µs, rate by rate.
function above(contender, other, what,    r, text) {
    for (r = 1; r <= rate_count; r++)
        text = text sprintf("%s%.0f", r > 1 ? " / " : "", (of(contender, rate_list[r], what) - of(other, rate_list[r], what)) / 1000)
    return text
}
function total(contender, rate) { return of(contender, rate, "gateway") + of(contender, rate, "game") }
# What is there and what may be, and whether it is.
function verdict(is, most, format) {
    return sprintf(format " (at most " format "): ", is, most) (is <= most + 0 ? "met" : "**missed**")
}
function over_at(rate, most) {
    return total(over, rate) > 0 ? verdict(total("bundle-auto", rate) / total(over, rate), most, "%.2f") : "–"
}
function above_woken(rate, what) { return (of("bundle-auto", rate, what) - of("bundle-0us", rate, what)) / 1000 }
# Rows about bundle-auto, for RATE:RATIO:P50:P99 each; what was not measured cannot be judged.
function judge(    count, list, i, bound, rate, woken, row) {
    count = split(bounds, list, " ")
    if (count && steps["bundle-auto"]) print "\n| bundle-auto at | CPU over " over " | p50 above 0us, µs | p99 above 0us, µs |\n|---|---|---|---|"
    for (i = 1; i <= count; i++) {
        split(list[i], bound, ":")
        rate = bound[1]
        if (of("bundle-auto", rate, "p50") == "") continue
        woken = of("bundle-0us", rate, "p50") != ""
        row = "| " rate " | " over_at(rate, bound[2])
        row = row " | " (woken ? verdict(above_woken(rate, "p50"), bound[3], "%.0f") : "–")
        print row " | " (woken ? verdict(above_woken(rate, "p99"), bound[4], "%.0f") : "–") " |"
    }
}
function latency(contender, rate,    p50, p99, lost) {
    p50 = of(contender, rate, "p50"); p99 = of(contender, rate, "p99"); lost = of(contender, rate, "loss")
    if (p50 == "") return "–"
    return sprintf("%.0f / %.0f", p50 / 1000, p99 / 1000) (lost > 0.001 ? sprintf(" (%.1f %% lost)", lost * 100) : "")
}

BEGIN { rate_count = split(rates, rate_list, ",") }
NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
function field(name) { return $column[name] }
function add(contender, rate, what, name) {
    if (field(name) != "") seen[contender, rate, what] = seen[contender, rate, what] " " field(name)
}
field("good") == "void" || field("good") == "interrupted" { next }
field("kind") == "at" {
    add(field("contender"), field("rate"), "gateway", "gateway_us")
    add(field("contender"), field("rate"), "game", "game_us")
    add(field("contender"), field("rate"), "core", "core_us")
    add(field("contender"), field("rate"), "p50", "p50_ns")
    add(field("contender"), field("rate"), "p99", "p99_ns")
    add(field("contender"), field("rate"), "loss", "loss")
    if (field("late_p99_ns") > 100000) late[field("contender")]++
    steps[field("contender")]++
}
# A round's knee is its highest rate that went well.
field("kind") == "knee" && field("good") == "true" {
    at = field("contender") SUBSEP field("round")
    if (field("rate") + 0 > best[at] + 0) best[at] = field("rate")
}
field("kind") == "knee" && field("round") > rounds { rounds = field("round") }
END {
    count = split(names, pairs, ";")
    for (i = 1; i <= count; i++) {
        split(pairs[i], pair, "=")
        name[pair[1]] = pair[2]
    }
    head = "| |"; line = "|---|"
    for (r = 1; r <= rate_count; r++) {
        head = head sprintf(" CPU at %dk |", rate_list[r] / 1000)
        line = line "---|"
    }
    for (r = 1; r <= rate_count; r++) {
        head = head sprintf(" p50 / p99 at %dk, µs |", rate_list[r] / 1000)
        line = line "---|"
    }
    print head " knee per second | generator late |"
    print line "---|---|"
    order_count = split(contenders, order, " ")
    for (c = 1; c <= order_count; c++) {
        who = order[c]
        if (index(skipped, " " who " ") && !steps[who]) continue
        row = "| " name[who] " |"
        for (r = 1; r <= rate_count; r++) row = row " " cpu(who, rate_list[r]) " |"
        for (r = 1; r <= rate_count; r++) row = row " " latency(who, rate_list[r]) " |"
        knees = ""
        for (r = 1; r <= rounds; r++) if ((who SUBSEP r) in best) knees = knees " " best[who, r]
        knee = median(knees)
        print row " " (knee == "" ? "–" : sprintf("%.0f k", knee / 1000)) " | " (late[who] + 0) " of " (steps[who] + 0) " |"
    }
    for (c = 1; c <= order_count; c++) {
        who = woken = order[c]
        if (sub(/-auto$/, "-0us", woken) && steps[who] && steps[woken])
            printf "\n%s above %s: p50 %s µs, p99 %s µs.\n", who, woken, above(who, woken, "p50"), above(who, woken, "p99")
    }
    judge()
}
