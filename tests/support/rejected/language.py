"""Texts that are no placement."""

from __future__ import annotations

GRAMMAR = "write resource_ranks[:process_ranks],..., e.g. 0-1:0-3,4-7 or all"

# (text, resources in the group, [(code, the text under its span), ...])
REFUSED = [
    # not of the grammar: the first fault alone, whatever else is wrong
    ("x", 8, [("syntax", "x")]),
    ("0-3:0-3:0-3", 8, [("syntax", ":")]),
    ("3-1,9,x", 8, [("syntax", "x")]),
    ("0-1-2", 8, [("syntax", "-")]),
    ("0..3", 8, [("syntax", ".")]),
    ("0;1", 8, [("syntax", ";")]),
    ("0 1", 8, [("syntax", "1")]),
    ("-1", 8, [("syntax", "-")]),
    ("+3", 8, [("syntax", "+")]),
    ("0-+3", 8, [("syntax", "+")]),
    ("0-3/2", 8, [("syntax", "/")]),
    ("[0-3]", 8, [("syntax", "[")]),
    ("0x3", 8, [("syntax", "x3")]),
    ("1e3", 8, [("syntax", "e3")]),
    ("1.0", 8, [("syntax", ".")]),
    ("None", 8, [("syntax", "None")]),
    ("all-0", 8, [("syntax", "-")]),
    ("0-all", 8, [("syntax", "all")]),
    ("all all", 8, [("syntax", "all")]),
    ("alle", 8, [("syntax", "alle")]),
    ("0:0:", 8, [("syntax", ":")]),
    ("::", 8, [("syntax", ":")]),
    # numbers are ASCII digits
    ("00", 8, [("syntax", "00")]),
    ("0-07", 8, [("syntax", "07")]),
    ("0_1", 8, [("syntax", "_")]),
    ("\u0663", 8, [("syntax", "\u0663")]),  # Arabic-Indic
    ("0-\uff13", 8, [("syntax", "\uff13")]),  # fullwidth
    ("\u00b2", 8, [("syntax", "\u00b2")]),  # superscript two
    ("0\u20133", 8, [("syntax", "\u2013")]),  # en dash
    ("\uff10-3", 8, [("syntax", "\uff10")]),  # fullwidth
    ("0-3\0", 8, [("syntax", "\0")]),
    # numbers end at 4294967294
    ("4294967295", 8, [("syntax", "4294967295")]),
    ("0-4294967295", 8, [("syntax", "4294967295")]),
    ("0:0-4294967295", 8, [("syntax", "4294967295")]),
    ("18446744073709551616", 8, [("syntax", "18446744073709551616")]),
    ("4294967294", 8, [("resource-out-of-range", "4294967294")]),
    ("0:0-4294967294", 1, [("too-many-processes", "0-4294967294")]),
    ("0:0-16777216", 1, [("too-many-processes", "0-16777216")]),
    ("0:0-16777216,1:16777217", 2, [("too-many-processes", "0-16777216")]),
    # nothing there
    (" , ,, ", 8, [("empty-placement", " , ,, ")]),
    # reversed ranges; the rest is still looked at
    ("7-3", 8, [("reversed-range", "7-3")]),
    ("0-3:7-4", 8, [("reversed-range", "7-4")]),
    ("5-4:0-1,6:9,7:5", 8, [("reversed-range", "5-4"), ("process-gap", "9"), ("process-gap", "5")]),
    ("5-4,6:9,7:10", 8, [("reversed-range", "5-4")]),
    # the resources
    ("8", 8, [("resource-out-of-range", "8")]),
    ("6-9", 8, [("resource-out-of-range", "6-9")]),
    ("0,7-8,9", 8, [("resource-out-of-range", "7-8"), ("resource-out-of-range", "9")]),
    ("0,0", 8, [("duplicate-resource", "0")]),
    ("0-3,2-5", 8, [("duplicate-resource", "2-5")]),
    ("4-7,0-3", 8, [("resource-order", "0-3")]),
    ("0,4,2,4", 8, [("resource-order", "2"), ("duplicate-resource", "4")]),
    ("0,all", 8, [("duplicate-resource", "all")]),
    ("all,9", 8, [("resource-out-of-range", "9")]),
    ("0-3:0-1,2-3", 8, [("duplicate-resource", "2-3")]),
    ("9,9", 8, [("resource-out-of-range", "9"), ("resource-out-of-range", "9"), ("duplicate-resource", "9")]),
    # the processes
    ("0-3:4-7", 8, [("process-start", "4-7")]),
    ("0-3:1-4,4:5", 8, [("process-start", "1-4")]),
    ("0-1,4-5:3-4", 8, [("process-gap", "3-4")]),
    ("0-1:0-1,2-3:1-2", 8, [("process-gap", "1-2")]),
    ("0:1,1:0", 8, [("process-start", "1"), ("process-gap", "0")]),
    ("0,1:5", 8, [("process-gap", "5")]),
    ("0-3:all", 8, [("all-processes", "all")]),
    ("all:ALL", 8, [("all-processes", "ALL")]),
    # the sizes
    ("0-1:0-2", 8, [("not-multiple", "0-1")]),
    ("0-1:0-200,2-3:201-511", 4, [("not-multiple", "0-1"), ("not-multiple", "2-3")]),
    ("0,2,4:0-1", 8, [("not-multiple", "0,2,4")]),
    # out of bounds, only what the fix of that fault leaves must fit
    ("4-8:0-1", 8, [("resource-out-of-range", "4-8")]),
    ("5-9:0-1", 8, [("resource-out-of-range", "5-9"), ("not-multiple", "5-9")]),
    ("8-10:0-1", 8, [("resource-out-of-range", "8-10")]),
    # nothing to place on
    ("0-3", 0, [("no-resources", "0-3")]),
    ("all", 0, [("no-resources", "all")]),
    # several faults, in the order of the text
    ("9:0-1,7-3,0:3-4", 8, [("resource-out-of-range", "9"), ("reversed-range", "7-3"), ("resource-order", "0")]),
]
