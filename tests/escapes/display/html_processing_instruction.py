"""Declarations and instructions that hide a tag."""

html(f"<?xml-stylesheet href='javascript:{JS}'?><!DOCTYPE html [<!ENTITY a '<script>{JS}</script>'>]>&a;<!ELEMENT x><img src=x onerror={JS}>")
