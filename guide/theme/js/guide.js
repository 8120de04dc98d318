// What the theme's scripts expect as global variables, and the system's light or dark mode.
'use strict'
var base_url = document.currentScript.dataset.base
var shortcuts = {help: 191, next: 78, previous: 80, search: 83}
const dark = matchMedia('(prefers-color-scheme: dark)')
const colour = () => { document.documentElement.dataset.bsTheme = dark.matches ? 'dark' : 'light' }
dark.addEventListener('change', colour)
colour()
// Enter in the search opens the first result
document.addEventListener('submit', event => {
  event.preventDefault()
  document.querySelector('#mkdocs-search-results a')?.click()
})
// Landmarks for screen readers, and long lines that the keyboard can scroll
document.addEventListener('DOMContentLoaded', () => {
  document.querySelector('body > .navbar').setAttribute('role', 'banner')
  document.querySelectorAll('.bs-sidebar').forEach(each => { each.setAttribute('role', 'navigation'); each.ariaLabel = 'On this page' })
  document.querySelectorAll('pre, [role=main] table').forEach(each => { each.tabIndex = 0 })
})
