"""Comments within templates and paragraphs within buttons."""

html(f"<template><!--</template><img src=x onerror={JS}>--></template><p><button><p><img src=x onerror={JS}></button>")
