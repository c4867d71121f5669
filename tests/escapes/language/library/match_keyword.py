# A keyword pattern.
match len:
    case object(__self__=b): @@LOOTB@@
