"""Reads shell scripts without running them: what a script itself decides is known, and everything else has a cause.

This is the part of bash that launch scripts use, written here because the parsers that exist do not serve:
tree-sitter-bash reads ``${P:-$((a+b))}`` and ``http://$A:$B`` as something else without saying so; bashlex is under the
GPL, and fails on half of the launch scripts of the systems that rankplan reads.
"""
