r"""TeX in outputs: the allowlist of commands that may stay. Pure functions.

Front ends hand formulas to MathJax. nbconvert hands ``text/latex`` and, through pandoc,
``text/markdown`` to a TeX engine, which reads and writes files. A list of dangerous commands would
never be complete (``\@@input``, ``\file_input:n`` after ``\ExplSyntaxOn``, ``filecontents``). So
the tables below list the commands that may stay, and all others are broken.

Invariant: in the result, a backslash before two or more letters begins one of ``COMMANDS``, and
each ``\begin`` and ``\end`` names one of ``ENVIRONMENTS``. That holds wherever the command is: in a
comment, in code, after a backslash. So a reader that divides the text in another way (MathJax,
pandoc, TeX in a verbatim environment) finds no other command either.
"""

from __future__ import annotations

import re
from typing import Final

from cellblock.host.output.markup import JOINER, words

#: Commands that may stay: those of MathJax 3 and 4 with all extensions, and those with which LaTeX
#: sets text and tables. A paragraph for each package, sorted.
#:
#: Some commands of MathJax are left out on purpose. These link, load, or act on the page: href,
#: data, cssId, class, style, require, bbox, mmlToken, unicode, toggle, mathtip, texttip. These
#: define commands, which could hide any other and outlast the output: def, let, newcommand,
#: newenvironment, DeclareMathOperator, DeclarePairedDelimiter, definecolor, newcolumntype,
#: newtagform, mathtoolsset, begingroup, global. After verb, TeX reads backslashes in another way.
COMMANDS: Final = words(
    # TeX and LaTeX themselves
    "Arrowvert Bbb Big Bigg Biggl Biggm Biggr Bigl Bigm Bigr Delta Downarrow Gamma HUGE Huge Im",
    "LARGE LaTeX Lambda Large Leftarrow Leftrightarrow Longleftarrow Longleftrightarrow",
    "Longrightarrow Omega Phi Pi Pr Psi Re Rightarrow Rule SMALL Sigma Small Space TeX Theta",
    "Tiny Uparrow Updownarrow Upsilon Vert Xi above abovewithdelims acute aleph allowbreak",
    "alpha amalg angle approx arccos arcsin arctan arg array arrowvert ast asymp atop",
    "atopwithdelims backslash badbreak bar beta bf big bigcap bigcirc bigcup bigg biggl biggm",
    "biggr bigl bigm bigodot bigoplus bigotimes bigr bigsqcup bigtriangledown bigtriangleup",
    "biguplus bigvee bigwedge bmod bot bowtie boxed brace bracevert brack break breakAlign",
    "breve buildrel bullet cal cap cases cdot cdotp cdots check chi choose circ clubsuit colon",
    "cong coprod cos cosh cot coth cr csc cup dagger dashv ddagger ddddot dddot ddot ddots deg",
    "delta det diamond diamondsuit dim displaylines displaystyle div divsymbol dot doteq dots",
    "dotsb dotsc dotsi dotsm dotso downarrow ell emph emptyset enspace epsilon eqalign",
    "eqalignno equiv eta exists exp fbox flat footnotesize forall frac frak framebox frown",
    "gamma gcd ge geq gets gg goodbreak grave gt hat hbar hbox hdashline heartsuit hfil hfill",
    "hfilll hline hom hookleftarrow hookrightarrow hphantom hskip hspace huge iddots iff iiint",
    "iint imath in inf infty int intop iota it jmath kappa ker kern label lambda land langle",
    "large lbrace lbrack lceil ldotp ldots le left leftarrow leftharpoondown leftharpoonup",
    "leftrightarrow leftroot leq leqalignno lfloor lg lgroup lim liminf limits limsup ll llap",
    "lmoustache ln lnot log longleftarrow longleftrightarrow longmapsto longrightarrow lor",
    "lower lt makebox mapsto mathbb mathbf mathbfcal mathbffrak mathbfit mathbfscr mathbfsf",
    "mathbfsfit mathbfsfup mathbfup mathbin mathcal mathchoice mathclose mathfrak mathinner",
    "mathit mathnormal mathop mathopen mathord mathpunct mathrel mathrm mathscr mathsf mathsfit",
    "mathsfup mathstrut mathtt mathup matrix max mbox mid middle min mit mkern mod models",
    "moveleft moveright mp mskip mspace mu nabla natural ne nearrow neg negthinspace neq",
    "newline ni nobreak nolimits nonscript nonumber normalsize not notin nu nwarrow odot oiiint",
    "oiint oint ointop oldstyle omega omicron ominus oplus oslash otimes over overbrace",
    "overleftarrow overleftrightarrow overline overparen overrightarrow overset overunderset",
    "overwithdelims owns parallel parbox partial perp phantom phi pi pm pmatrix pmb pmod pod",
    "prec preceq prime prod propto psi qquad quad raise rangle rbrace rbrack rceil ref rfloor",
    "rgroup rho right rightarrow rightharpoondown rightharpoonup rightleftharpoons rlap rm",
    "rmoustache root rule scr scriptscriptstyle scriptsize scriptstyle searrow sec setminus sf",
    "sharp sigma sim simeq sin sinh skew small smallint smash smile space spadesuit sqcap sqcup",
    "sqrt sqsubseteq sqsupseteq stackbin stackrel star strut subset subseteq succ succeq sum",
    "sup supset supseteq surd swarrow symbb symbf symbfcal symbffrak symbfit symbfscr symbfsf",
    "symbfsfit symbfsfup symbfup symcal symfrak symit symnormal symrm symscr symsf symsfit",
    "symsfup symtt symup tan tanh tau text textbf textit textnormal textrm textsf textstyle",
    "texttt textup theta thinspace tilde times tiny to top triangle triangleleft triangleright",
    "tt underbrace underleftarrow underleftrightarrow underline underparen underrightarrow",
    "underset uparrow updownarrow uplus uproot upsilon varepsilon varphi varpi varrho varsigma",
    "vartheta vbox vcenter vdash vdots vec vee vert vphantom vtop wedge widehat widetilde wp wr",
    "xi zeta",
    # amsmath, amssymb, amscd, mathtools
    "Aboxed Approxcolon ArrowBetweenLines Bbbk Box Bumpeq Cap Colonapprox Colondash Coloneq",
    "Coloneqq Colonsim Cup Dashcolon Diamond Doteq Eqcolon Eqqcolon Finv Game Join Lleftarrow",
    "Lsh MTFlushSpaceAbove MTFlushSpaceBelow MTThinColon MoveEqLeft Rrightarrow Rsh Simcolon",
    "Subset Supset Vdash Vvdash adjustlimits approxcolon approxeq backepsilon backprime backsim",
    "backsimeq barwedge because beth between bigstar bigtimes binom blacklozenge blacksquare",
    "blacktriangle blacktriangledown blacktriangleleft blacktriangleright boxdot boxminus",
    "boxplus boxtimes bumpeq centercolon centerdot cfrac checkmark circeq circlearrowleft",
    "circlearrowright circledR circledS circledast circledcirc circleddash clap colonapprox",
    "colondash coloneq coloneqq colonsim complement cramped crampedclap crampedllap crampedrlap",
    "crampedsubstack curlyeqprec curlyeqsucc curlyvee curlywedge curvearrowleft curvearrowright",
    "daleth dashcolon dashleftarrow dashrightarrow dbinom dblcolon dfrac diagdown diagup",
    "digamma divideontimes doteqdot dotplus doublebarwedge doublecap doublecup downdownarrows",
    "downharpoonleft downharpoonright eqcirc eqcolon eqqcolon eqref eqsim eqslantgtr",
    "eqslantless eth fallingdotseq genfrac geqq geqslant ggg gggtr gimel gnapprox gneq gneqq",
    "gnsim gtrapprox gtrdot gtreqless gtreqqless gtrless gtrsim gvertneqq hslash idotsint",
    "iiiint impliedby implies injlim intercal lVert leadsto leftarrowtail leftleftarrows",
    "leftrightarrows leftrightharpoons leftrightsquigarrow leftthreetimes leqq leqslant",
    "lessapprox lessdot lesseqgtr lesseqqgtr lessgtr lesssim lhd llcorner lll llless lnapprox",
    "lneq lneqq lnsim looparrowleft looparrowright lozenge lparen lrcorner ltimes lvert",
    "lvertneqq maltese mathclap mathllap mathmakebox mathmbox mathring mathrlap measuredangle",
    "mho minCDarrowheight minCDarrowwidth multimap nLeftarrow nLeftrightarrow nRightarrow",
    "nVDash nVdash ncong ndownarrow negmedspace negthickspace nexists ngeq ngeqq ngeqslant ngtr",
    "nleftarrow nleftrightarrow nleq nleqq nleqslant nless nmid nobreakspace notag nparallel",
    "nprec npreceq nrightarrow nshortmid nshortparallel nsim nsubseteq nsubseteqq nsucc nsucceq",
    "nsupseteq nsupseteqq ntriangleleft ntrianglelefteq ntriangleright ntrianglerighteq",
    "nuparrow nvDash nvdash operatorname ordinarycolon overbracket pitchfork precapprox",
    "preccurlyeq precnapprox precneqq precnsim precsim prescript projlim rVert refeq",
    "restriction rhd rightarrowtail rightleftarrows rightrightarrows rightsquigarrow",
    "rightthreetimes risingdotseq rparen rtimes rvert shortmid shortparallel shortvdotswithin",
    "shoveleft shoveright sideset simcolon smallfrown smallsetminus smallsmile sphericalangle",
    "splitdfrac splitfrac sqsubset sqsupset square subseteqq subsetneq subsetneqq substack",
    "succapprox succcurlyeq succnapprox succneqq succnsim succsim supseteqq supsetneq",
    "supsetneqq tag tbinom textclap textllap textrlap tfrac therefore thickapprox thicksim",
    "triangledown trianglelefteq triangleq trianglerighteq twoheadleftarrow twoheadrightarrow",
    "ulcorner underbracket unlhd unrhd upharpoonleft upharpoonright upuparrows urcorner vDash",
    "varDelta varGamma varLambda varOmega varPhi varPi varPsi varSigma varTheta varUpsilon",
    "varXi varinjlim varkappa varliminf varlimsup varnothing varprojlim varpropto varsubsetneq",
    "varsubsetneqq varsupsetneq varsupsetneqq vartriangle vartriangleleft vartriangleright",
    "vcentercolon vdotswithin veebar xLeftarrow xLeftrightarrow xLongleftarrow xLongrightarrow",
    "xRightarrow xhookleftarrow xhookrightarrow xleftarrow xleftharpoondown xleftharpoonup",
    "xleftrightarrow xleftrightharpoons xlongleftarrow xlongrightarrow xmapsto xmathstrut",
    "xrightarrow xrightharpoondown xrightharpoonup xrightleftharpoons yen",
    # physics
    "Bqty PV Pmqty Probability Res Residue Tr Trace abs absolutevalue acomm acos acosecant",
    "acosine acot acotangent acsc admat anticommutator antidiagonalmatrix arccosecant arccosine",
    "arccot arccotangent arccsc arcsec arcsecant arcsine arctangent asec asecant asin asine",
    "atan atangent bmqty bqty bra braket comm commutator cosecant cosine cotangent cp cross",
    "crossproduct csch curl dd derivative determinant diagonalmatrix diffd differential",
    "divergence divisionsymbol dmat dotproduct dv dyad erf ev eval evaluated expectationvalue",
    "exponential expval fderivative fdv flatfrac functionalderivative grad gradient",
    "gradientnabla hypcosecant hypcosine hypcotangent hypsecant hypsine hyptangent",
    "identitymatrix imaginary imat innerproduct ip ket ketbra laplacian logarithm",
    "matrixdeterminant matrixel matrixelement matrixquantity mdet mel mqty naturallogarithm",
    "norm op order outerproduct partialderivative paulimatrix pb pderivative pdv pmat pmqty",
    "poissonbracket pqty principalvalue pv qall qand qas qassume qc qcc qcomma qelse qeven qfor",
    "qgiven qif qin qinteger qlet qodd qor qotherwise qq qqtext qsince qthen qty quantity",
    "qunless qusing rank real sPmqty sbmqty secant sech sine smallmatrixquantity smdet smqty",
    "spmqty svmqty tangent tr trace va var variation vb vdot vectorarrow vectorbold vectorunit",
    "vmqty vnabla vqty vu xmat xmatrix zeromatrix zmat",
    # bussproofs, empheq, enclose, cancel, cases
    "AXC Axiom AxiomC BIC BinaryInf BinaryInfC LL LeftLabel QuaternaryInf QuaternaryInfC",
    "QuinaryInf QuinaryInfC RL RightLabel TIC TrinaryInf TrinaryInfC UIC UnaryInf UnaryInfC",
    "alwaysDashedLine alwaysNoLine alwaysRootAtBottom alwaysRootAtTop alwaysSingleLine",
    "alwaysSolidLine bcancel cancel cancelto centerOver centernot dashedLine empheqbigl",
    "empheqbiglVert empheqbiglangle empheqbiglbrace empheqbiglbrack empheqbiglceil",
    "empheqbiglfloor empheqbiglparen empheqbiglvert empheqbigr empheqbigrVert empheqbigrangle",
    "empheqbigrbrace empheqbigrbrack empheqbigrceil empheqbigrfloor empheqbigrparen",
    "empheqbigrvert empheql empheqlVert empheqlangle empheqlbrace empheqlbrack empheqlceil",
    "empheqlfloor empheqlparen empheqlvert empheqr empheqrVert empheqrangle empheqrbrace",
    "empheqrbrack empheqrceil empheqrfloor empheqrparen empheqrvert enclose fCenter noLine",
    "rootAtBottom rootAtTop singleLine solidLine xcancel",
    # braket, gensymb, units, mhchem, extpfeil
    "Bra Braket Ket Ketbra Set ce celsius degree longLeftrightharpoons longRightleftharpoons",
    "longleftrightarrows longrightleftharpoons micro nicefrac ohm perthousand pu set tripledash",
    "unitfrac units xLeftrightharpoons xRightleftharpoons xlongequal xtofrom xtwoheadleftarrow",
    "xtwoheadrightarrow",
    # colours
    "cellcolor color colorbox columncolor fcolorbox rowcolor textcolor",
    # upgreek, boldsymbol, bbm, bboldx, dsfont
    "Updelta Upgamma Uplambda Upomega Upphi Uppi Uppsi Upsigma Uptheta Upupsilon Upxi bbDelta",
    "bbGamma bbLambda bbLangle bbLbrack bbLparen bbOmega bbPhi bbPi bbPsi bbRangle bbRbrack",
    "bbRparen bbSigma bbTheta bbUpsilon bbXi bbalpha bbbeta bbchi bbdelta bbdotlessi bbdotlessj",
    "bbepsilon bbeta bbgamma bbiota bbkappa bblambda bbmu bbnu bbomega bbphi bbpi bbpsi bbrho",
    "bbsigma bbtau bbtheta bbupsilon bbxi bbzeta bfbbDelta bfbbGamma bfbbLambda bfbbLangle",
    "bfbbLbrack bfbbLparen bfbbOmega bfbbPhi bfbbPi bfbbPsi bfbbRangle bfbbRbrack bfbbRparen",
    "bfbbSigma bfbbTheta bfbbUpsilon bfbbXi bfbbalpha bfbbbeta bfbbchi bfbbdelta bfbbdotlessi",
    "bfbbdotlessj bfbbepsilon bfbbeta bfbbgamma bfbbiota bfbbkappa bfbblambda bfbbmu bfbbnu",
    "bfbbomega bfbbphi bfbbpi bfbbpsi bfbbrho bfbbsigma bfbbtau bfbbtheta bfbbupsilon bfbbxi",
    "bfbbzeta boldsymbol imathbb imathbfbb jmathbb jmathbfbb mathbbm mathbbmss mathbbmtt",
    "mathbfbb mathds upalpha upbeta upchi updelta upepsilon upeta upgamma upiota upkappa",
    "uplambda upmu upnu upomega upomicron upphi uppi uppsi uprho upsigma uptau uptheta",
    "upupsilon upvarepsilon upvarphi upvarpi upvarrho upvarsigma upvartheta upxi upzeta",
    # textcomp
    "textacutedbl textasciiacute textasciibreve textasciicaron textasciicircum",
    "textasciidieresis textasciimacron textasciitilde textasteriskcentered textbackslash",
    "textbaht textbar textbardbl textbigcircle textblank textborn textbraceleft textbraceright",
    "textbrokenbar textbullet textcelsius textcent textcentoldstyle textcircledP",
    "textcolonmonetary textcompwordmark textcopyleft textcopyright textcurrency textdagger",
    "textdaggerdbl textdegree textdied textdiscount textdiv textdivorced textdollar",
    "textdollaroldstyle textdong textdownarrow texteightoldstyle textellipsis textemdash",
    "textendash textestimated texteuro textexclamdown textfiveoldstyle textflorin",
    "textfouroldstyle textfractionsolidus textgravedbl textgreater textguarani textinterrobang",
    "textinterrobangdown textlangle textlbrackdbl textleftarrow textless textlira textlnot",
    "textlquill textmarried textmho textminus textmu textmusicalnote textnaira textnineoldstyle",
    "textnumero textohm textonehalf textoneoldstyle textonequarter textonesuperior",
    "textopenbullet textordfeminine textordmasculine textparagraph textperiodcentered",
    "textpertenthousand textperthousand textpeso textpm textquestiondown textquotedblleft",
    "textquotedblright textquoteleft textquoteright textrangle textrbrackdbl textrecipe",
    "textreferencemark textregistered textrightarrow textrquill textsection textservicemark",
    "textsevenoldstyle textsixoldstyle textsterling textsurd textthreeoldstyle",
    "textthreequarters textthreesuperior texttildelow texttimes texttrademark texttwooldstyle",
    "texttwosuperior textunderscore textuparrow textvisiblespace textwon textyen",
    "textzerooldstyle",
    # accents and letters
    "AA AE OE aa ae oe ss",
    # fonts, space and notes of LaTeX's text
    "bfseries bigskip centering footnote indent item itshape linewidth mdseries medskip",
    "noindent normalfont par rmfamily scshape sffamily slshape smallskip textsc textsl",
    "textsubscript textsuperscript textwidth ttfamily upshape vfill vspace",
    # tables: tabular, booktabs, longtable, multirow
    "addlinespace arraybackslash bottomrule caption cline cmidrule endfirsthead endfoot endhead",
    "endlastfoot midrule multicolumn multirow tabcolsep tabularnewline toprule",
)
#: Environments that may stay: MathJax's, and LaTeX's for text and tables. TeX turns the name of an
#: environment into a command, so they need an allowlist too.
ENVIRONMENTS: Final = words(
    # mathematics
    "Bmatrix Bmatrix* Bsmallmatrix Bsmallmatrix* CD Vmatrix Vmatrix* Vsmallmatrix Vsmallmatrix*",
    "align align* alignat alignat* aligned alignedat array bmatrix bmatrix* bsmallmatrix",
    "bsmallmatrix* cases cases* crampedsubarray darray dcases dcases* displaymath drcases",
    "drcases* empheq eqnarray eqnarray* equation equation* flalign flalign* gather gather*",
    "gathered indentalign lgathered math matrix matrix* multline multline* multlined numcases",
    "pmatrix pmatrix* prooftree psmallmatrix psmallmatrix* rcases rcases* rgathered smallmatrix",
    "smallmatrix* split spreadlines subarray subnumcases vmatrix vmatrix* vsmallmatrix",
    "vsmallmatrix* xalignat xalignat* xxalignat",
    # text and tables of LaTeX
    "center description enumerate flushleft flushright itemize longtable quote table table*",
    "tabular tabular*",
)

#: A command: backslashes, a name, and after ``begin`` and ``end`` the environment's name. The names
#: of TeX's internal commands may have ``@``.
_COMMAND: Final = re.compile(
    r"(?<!\\)(\\++)([A-Za-z@]++)(?:(?:(?<=\\begin)|(?<=\\end))[ \t]*+\{([^{}\\]*+)\})?"
)
#: ``^^5c`` is a backslash for TeX.
_CARETS: Final = re.compile(r"\^(?=\^)")
#: ``<b`` would begin a tag where TeX is written into a page.
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
#: An entity that is a backslash or a letter where TeX is written into a page.
_SPELLED: Final = re.compile(r"&(?=#|bsol|Backslash)")
#: The beginning of a formula for MathJax in a page's text, where entities are resolved already.
_FORMULA: Final = re.compile(r"\$|\\[(\[]|\\begin|&(?:#0*36|#[xX]0*24|dollar)(?!\w)")

#: Code that every reader of Markdown takes for code: a block between two fences at the left edge,
#: or a span within a line. A ``|`` would end the cell of a table, in code too, so a span has none.
_CODE: Final = re.compile(
    r"^```[\w+#.-]*+\n(?:(?![ \t]*+(?:```|~~~)).*+\n)*+```[ \t]*+(?=\n|\Z)"
    r"|(?<!`)`[^`|\n]++`(?!`)",
    re.ASCII | re.MULTILINE,
)
#: Markup outside of code because of which readers may disagree where code begins: TeX, tags,
#: formulas, links and their definitions, notes, citations, attributes, divisions, other fences, and
#: lines of dashes, between which pandoc finds the rows of a table.
_AMBIGUOUS: Final = re.compile(
    r"[\\<$`{]|~~~|:::|\][(:\[]|\[[\^@]|\^\[|^[ \t]*+-[ \t-]*-[ \t]*$", re.MULTILINE
)


def clean(text: str) -> str:
    r"""Return TeX in which all commands do no more than set their arguments.

    Other commands become text: ``\input{x}`` becomes ``\text{input}{x}``, so a reader sees which
    command is missing, and its arguments. Nothing is lost that way: a front end shows the name of a
    command that it does not know.
    """
    text = _COMMAND.sub(_as_text, _SPELLED.sub("& ", text) if "&" in text else text)
    return _TAG.sub("< ", _CARETS.sub("^ ", text))


def clean_formulas(text: str) -> str:
    """Return a page's text in which MathJax finds only commands that may stay.

    Text without formulas keeps its backslashes, as in paths.
    """
    return clean_mixed(text) if "\\" in text and _FORMULA.search(text) else text


def clean_mixed(text: str) -> str:
    """Return text that may have TeX anywhere, with all commands broken that may not stay.

    An invisible character separates such a command from its backslash.
    """
    return _COMMAND.sub(_parted, text) if "\\" in text else text


def clean_markdown(text: str) -> str:
    """Return Markdown with other commands broken.

    Code keeps its backslashes if no reader can take it for anything else. Users copy paths,
    patterns and programs from code, and an invisible character would break these.
    """
    if "\\" not in text and "^^" not in text:
        return text
    if _AMBIGUOUS.search(_CODE.sub("", text)):
        return _CARETS.sub(f"^{JOINER}", clean_mixed(text))
    return text


def _as_text(match: re.Match[str]) -> str:
    r"""Return a command, as ``\text`` if it may not stay."""
    if _may_stay(match):
        return match[0]
    slashes = match[1]
    name = match[2]
    rest = match[0][len(slashes) + len(name) :]
    if len(slashes) % 2 == 0:
        # Line breaks and then letters, no command. A blank between them changes nothing in TeX.
        return f"{slashes} {name}{rest}"
    return f"{slashes[1:]}\\text{{{name}}}{rest}"


def _parted(match: re.Match[str]) -> str:
    """Return a command, separated from its backslash if it may not stay."""
    if _may_stay(match):
        return match[0]
    return f"{match[1]}{JOINER}{match[0][len(match[1]) :]}"


def _may_stay(match: re.Match[str]) -> bool:
    """Return whether a command is in the allowlist, or does nothing."""
    slashes, name, environment = match.groups()
    if len(name) == 1:
        # In TeX an accent, a letter or nothing; elsewhere part of a pattern or a path. Only \a does
        # more: it makes a command's name of its argument. After a line break it is a letter.
        return name != "a" or len(slashes) % 2 == 0
    if name in ("begin", "end"):
        return environment in ENVIRONMENTS
    return name in COMMANDS
